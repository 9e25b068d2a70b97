#!/usr/bin/env bash
# Writes the tables that `linnet families --markdown` prints into docs/families.md, between their comments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/families.md
program="${1:-build/release/apps/linnet/linnet}"
"$program" families --markdown | awk '
  NR == FNR { if (/^<!-- end of /) table = 0
              if (/^<!-- .*: printed by /) { table = 1; name = $2; text[name] = "" }
              else if (table) text[name] = text[name] $0 "\n"
              next }
  /^<!-- end of / { skip = 0 }
  !skip { print }
  /^<!-- .*: printed by / { skip = 1; printf "%s", text[$2] }' - "$page" > "$page.new"
mv "$page.new" "$page"
