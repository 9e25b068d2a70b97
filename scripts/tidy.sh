#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy over src/, apps/ and examples/, and the headers that they include.
# Options:
#   --changed   only over files that differ from the last commit, and those that include a header that does
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Versions differ in their checks and in what they find.
tidy=$(command -v clang-tidy-14 || command -v clang-tidy || true)
if [[ -z "$tidy" ]] || ! "$tidy" --version | grep -q 'version 14\.'; then
  echo "tidy: expected clang-tidy 14 (Debian 12: apt-get install clang-tidy-14), got ${tidy:-none}" >&2
  exit 1
fi
exec python3 scripts/tidy.py "$tidy" "$@"
