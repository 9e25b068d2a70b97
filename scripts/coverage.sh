#!/usr/bin/env bash
# Builds and tests with counters of lines, and prints the share of the lines of src/ that the tests run: of every module and of
# all. Fails where it is below 90 % of all. The lines that no test runs are in build/coverage/lines.html.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
least=90

scripts/setup.sh --coverage
cmake --preset coverage -DLINNET_WERROR=ON >/dev/null
cmake --build --preset coverage
find build/coverage -name '*.gcda' -delete
ctest --preset coverage -j "$(nproc)"

cd build/coverage
echo "coverage: counting"
gcovr --root ../.. --filter '\.\./\.\./src/' --csv lines.csv --html-details lines.html .
awk -F , -v least="$least" '
  NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
  { split($column["filename"], part, "/"); module = part[2]
    all[module] += $column["line_total"]; run[module] += $column["line_covered"]
    all["all"] += $column["line_total"]; run["all"] += $column["line_covered"] }
  END {
    for (module in all) if (module != "all") printf "%-12s %6.1f %%  of %d lines\n", module, 100 * run[module] / all[module], all[module] | "sort"
    close("sort")
    share = 100 * run["all"] / all["all"]
    printf "%-12s %6.1f %%  of %d lines\n", "src/", share, all["all"]
    if (share < least) { printf "coverage: expected at least %d %%\n", least; exit 1 }
  }' lines.csv
