#!/usr/bin/env bash
# Trains every causal family on the copy task and on small MNIST pictures, and draws the losses for docs/results.md:
#   experiments/causal_families.sh LINNET MNIST_FOLDER OUT [options of `linnet train` for all]
set -euo pipefail
if (($# < 3)); then
  echo "usage: experiments/causal_families.sh LINNET MNIST_FOLDER OUT [options of linnet train]" >&2
  exit 2
fi
linnet=$1 mnist=$2 out=$3
shift 3

train_all() { # CONFIG TITLE DATA [OPTION…]
  local config=$1 title=$2 data=$3
  shift 3
  run() { # NAME [SETTING…]
    local name=$1
    shift
    "$linnet" train "$config" --data "$data" --out "$out/$config/$name" "${@/#/--set=}" "${common[@]}"
  }
  local common=("$@")
  run linear
  run softmax attention.family=softmax
  run favor attention.feature_map=favor attention.features=64 attention.directions=orthogonal
  run local attention.family=local attention.window=32
  run strided attention.family=strided attention.stride=16
  run lsh attention.family=lsh attention.chunk=16 attention.rounds=2
  "$linnet" plot "$out/$config"/* --title "$title" --out "$out/$config.svg"
}

train_all copy "The copy task" copy "$@"
train_all mnist-small "MNIST, 14 × 14 pixels" "$mnist" "$@"
