#!/usr/bin/env bash
# Measures PyTorch's current release beside Linnet, in a virtual environment that it makes:
#   bench/peers/pytorch.sh LINNET FOLDER [PART ...] [--rounds N] [--threads N]
# LINNET is the program; FOLDER keeps the environment (some 6 GB, since the release brings its libraries for GPUs along).
set -euo pipefail
linnet=$1 folder=$2
shift 2
if [[ ! -e "$folder/complete" ]]; then
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir torch numpy
  touch "$folder/complete"
fi
# A processor that these variables name is not the one that PyTorch's libraries find best.
env --unset=OPENBLAS_CORETYPE --unset=OPENBLAS_L2_SIZE "$folder/bin/python" "$(dirname "$0")/pytorch.py" "$linnet" "$@"
