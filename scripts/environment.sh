#!/usr/bin/env bash
# Makes a Python virtual environment with some packages, unless it is there:
#   scripts/environment.sh FOLDER PYTHON PACKAGE ...
# An environment that was left unfinished is made again. A folder that holds something else is left alone.
set -euo pipefail
if (($# < 3)); then
  echo "environment: expected a folder, a Python and packages, got $# arguments" >&2
  exit 2
fi
folder=$1 python=$2
shift 2
if [[ -e "$folder/complete" ]]; then exit 0; fi
if [[ -e "$folder" && ! -e "$folder/unfinished" && -n "$(ls --almost-all "$folder")" ]]; then
  echo "environment: expected a new or empty folder, got $folder, which holds something" >&2
  exit 2
fi
rm -rf "$folder"
mkdir -p "$folder"
touch "$folder/unfinished"
"$python" -m venv "$folder"
for attempt in 1 2 3; do
  if "$folder/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "$@"; then
    touch "$folder/complete"
    rm "$folder/unfinished"
    exit 0
  fi
  echo "environment: attempt $attempt to install $* failed" >&2
done
exit 1
