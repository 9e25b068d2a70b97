#!/usr/bin/env bash
# Makes a Python virtual environment with some packages:
#   scripts/environment.sh FOLDER PYTHON PACKAGE ...
# Packages that an environment lacks are installed into it; its file `complete` lists those that it has. An environment that
# was left unfinished is made again. A folder that holds something else is left alone.
set -euo pipefail
if (($# < 3)); then
  echo "environment: expected a folder, a Python and packages, got $# arguments" >&2
  exit 2
fi
folder=$1 python=$2
shift 2
installed=()
if [[ -e "$folder/complete" ]]; then
  mapfile -t installed <"$folder/complete"
else
  if [[ -e "$folder" && ! -e "$folder/unfinished" && -n "$(ls --almost-all "$folder")" ]]; then
    echo "environment: expected a new or empty folder, got $folder, which holds something" >&2
    exit 2
  fi
  rm -rf "$folder"
  mkdir -p "$folder"
  touch "$folder/unfinished"
  "$python" -m venv "$folder"
fi

missing=()
for package in "$@"; do
  [[ " ${installed[*]} " == *" $package "* ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi
for attempt in 1 2 3; do
  if "$folder/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "${missing[@]}"; then
    printf '%s\n' "${installed[@]}" "${missing[@]}" >"$folder/complete.new"
    mv "$folder/complete.new" "$folder/complete"
    rm -f "$folder/unfinished"
    exit 0
  fi
  echo "environment: attempt $attempt to install ${missing[*]} failed" >&2
done
exit 1
