#!/usr/bin/env bash
# Trains encoders of proteins that differ in their attention alone, for docs/results.md:
#   experiments/proteins.sh LINNET FASTA_FILE OUT [options of `linnet train` for all]
set -euo pipefail
if (($# < 3)); then
  echo "usage: experiments/proteins.sh LINNET FASTA_FILE OUT [options of linnet train]" >&2
  exit 2
fi
linnet=$1 data=$2 out=$3
shift 3
common=("$@")

run() { # NAME SETTING…
  local name=$1
  shift
  "$linnet" train proteins --data "$data" --out "$out/proteins-$name" --set=training.steps=400 \
    --set=training.warmup=40 "${@/#/--set=}" "${common[@]}"
}

run softmax attention.family=softmax
run favor attention.feature_map=favor attention.directions=orthogonal
run elu attention.feature_map=elu
for rank in 16 64 256; do
  run "linformer-$rank" attention.family=linformer "attention.rank=$rank"
done
run local attention.family=local attention.window=32
run lsh attention.family=lsh attention.rounds=2
"$linnet" plot "$out"/proteins-* --out "$out/proteins.svg"
