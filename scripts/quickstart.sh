#!/usr/bin/env bash
# From a fresh machine to a transformer with linear attention that draws digits and trains, in under eight minutes on
# two cores. Writes samples.png and trained.png into the present folder.
#   --data FOLDER   train on MNIST's IDX files (plain or gzipped) instead of synthetic digits
set -euo pipefail

data=digits
while (($#)); do
  case "$1" in
    --data)
      [[ -d "${2:-}" ]] || { echo "quickstart: expected --data FOLDER with MNIST's files, got ${2:-nothing}" >&2; exit 2; }
      data=$(cd "$2" && pwd)
      shift 2
      ;;
    *)
      echo "quickstart: expected --data FOLDER or nothing, got $1" >&2
      exit 2
      ;;
  esac
done

out=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf '\n== %s\n' "$*"; }

say "Setting up"
scripts/setup.sh

say "Building (a few minutes the first time)"
cmake --preset release >/dev/null
cmake --build build/release --target linnet
linnet=build/release/apps/linnet/linnet

say "Drawing 64 digits with the shipped model: $out/samples.png"
"$linnet" generate models/digits --count 64 --columns 8 --out "$out/samples.png"

say "The same model with linear attention, with softmax and a key-value cache, and with softmax alone"
"$linnet" bench generate --config digits --streams 64 --no-cache

say "What one generated token and one stream's memory cost as the stream grows"
"$linnet" inspect models/digits | sed '/^name/,$d; /^ *name /,$d'

run=runs/quickstart
for ((i = 2; ; ++i)); do
  [[ -e "$run" ]] || break
  run=runs/quickstart-$i
done
say "Training on $data for about two minutes: $run"
"$linnet" train digits --data "$data" --out "$run"

say "Drawing with the model just trained: $out/trained.png"
"$linnet" generate "$run" --count 100 --columns 10 --out "$out/trained.png"

say "Done. Look at $out/samples.png and $out/trained.png; the run is in $PWD/$run"
