#include "data/division.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/lists.h"
#include "base/names.h"
#include "data/files.h"

namespace linnet {
namespace {

/// A number in (0, 1].
std::optional<double> fraction_of(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || !(value > 0 && value <= 1)) return {};
  return value;
}

}  // namespace

std::string split_of(const DataOptions& options) {
  if (!options.validation.empty() && !options.split.empty())
    fail<UsageError>("data", "expected data.split or data.validation, got both");
  if (!options.split.empty()) return options.split;
  return options.test.empty() ? "0.8,0.9" : "0.9";
}

Division divide(const std::string& split, std::int64_t steps, const std::string& origin,
                const RowOfTime& row_of_time) {
  constexpr std::size_t most = 3;
  const std::vector<std::string> ends = comma_separated(split);
  if (ends.empty() || ends.size() > most)
    fail<UsageError>("data", "expected data.split of 1 to {} ends of parts with commas between, got \"{}\"",
                     most, shortened(split));
  const bool fractions =
      std::ranges::all_of(ends, [](const std::string& end) { return fraction_of(end).has_value(); });
  std::vector<std::int64_t> rows;
  for (const std::string& end : ends) {
    std::optional<std::int64_t> row;
    if (fractions)
      row = std::llround(*fraction_of(end) * static_cast<double>(steps));
    else if (row_of_time)
      row = row_of_time(end);
    if (!row)
      fail<UsageError>(
          "data", "{}: expected {} in data.split, got \"{}\"", origin,
          row_of_time ? "fractions of 1 or times as in the file" : "fractions of 1 such as 0.8,0.9",
          shortened(end));
    const std::int64_t before = rows.empty() ? 0 : rows.back();
    // The test part alone may be empty.
    if (*row < before || (*row == before && rows.size() + 1 < most))
      fail<UsageError>(
          "data",
          "{}: expected data.split whose parts each have steps of the {}, got \"{}\", which ends a part at "
          "step {} after one at step {}; fractions such as 0.8,0.9 fit every file",
          origin, steps, shortened(split), *row, before);
    rows.push_back(*row);
  }
  if (rows.size() == 1 && rows[0] == steps)
    fail<UsageError>("data", "{}: expected data.split that leaves steps for validation, got \"{}\"", origin,
                     shortened(split));
  rows.resize(most, steps);
  return {rows[0], rows[1], rows[2]};
}

}  // namespace linnet
