#!/usr/bin/env bash
# Formats every source file in place; with --check only says which files would change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Versions format differently.
format=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z "$format" ]] || ! "$format" --version | grep -q 'version 14\.'; then
  echo "format: expected clang-format 14 (Debian 12: apt-get install clang-format-14), got ${format:-none}" >&2
  exit 1
fi

# New files too, before they are added.
listed=$(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.c')
mapfile -t files <<<"$listed"
if [[ -z "$listed" ]]; then
  echo "format: expected sources that git knows, got none" >&2
  exit 1
fi
case "${1:-}" in
  --check) "$format" --dry-run --Werror "${files[@]}" ;;
  "") "$format" -i "${files[@]}" ;;
  *)
    echo "format: expected --check or nothing, got $1" >&2
    exit 2
    ;;
esac
