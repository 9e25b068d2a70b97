#!/usr/bin/env bash
# Measures PyTorch's current release beside Linnet, in a virtual environment that it makes:
#   bench/peers/pytorch.sh LINNET FOLDER [PART ...] [--rounds N] [--threads N]
# LINNET is the program; FOLDER keeps the environment (some 6 GB, since the release brings its libraries for GPUs along).
set -euo pipefail
if (($# < 2)); then
  echo "usage: bench/peers/pytorch.sh LINNET FOLDER [PART ...] [--rounds N] [--threads N]" >&2
  exit 2
fi
linnet=$1 folder=$2
shift 2
"$(dirname "$0")/../../scripts/environment.sh" "$folder" python3 torch numpy
# A processor that these variables name is not the one that PyTorch's libraries find best.
env --unset=OPENBLAS_CORETYPE --unset=OPENBLAS_L2_SIZE "$folder/bin/python" "$(dirname "$0")/pytorch.py" "$linnet" "$@"
