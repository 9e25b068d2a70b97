// What a CSV file says of a series: its columns, its times, and how these go on.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/lists.h"
#include "base/memory.h"
#include "base/names.h"
#include "data/series.h"
#include "data/timestamp.h"
#include "io/csv.h"
#include "io/json.h"

namespace linnet {
namespace {

/// How the numbers of a file are written. Where commas part cells, numbers have points.
struct Notation {
  char separator = ',';
  bool points = false, commas = false;  ///< whether a number so far had one
};

/// The number of a cell, NaN for an empty one; nothing where it is no number.
std::optional<double> number_of(std::string_view cell) {
  cell = without_blanks(cell);
  if (cell.empty()) return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const char* const end = cell.data() + cell.size();
  const char* const begin = cell.data() + (cell.size() > 1 && cell[0] == '+' && cell[1] != '-' ? 1 : 0);
  const auto [at, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || at != end) return {};
  return value;
}

/// Whether a cell that is no number says so.
bool is_missing(std::string_view cell) {
  const std::string word = in_small_letters(without_blanks(cell));
  return word == "na" || word == "n/a" || word == "null" || word == "none";
}

/// The number of a cell in the notation of its file, which it may settle. Throws Error where numbers have
/// points and commas: one of them then separates thousands.
std::optional<double> number_of(const std::string& cell, Notation& notation, std::int64_t line,
                                const std::string& origin) {
  const std::size_t comma = notation.separator == ',' ? std::string::npos : cell.find(',');
  std::string text = cell;
  if (comma != std::string::npos) text[comma] = '.';
  const std::optional<double> number = number_of(std::string_view(text));
  if (!number) return {};
  notation.commas |= comma != std::string::npos;
  notation.points |= cell.find('.') != std::string::npos;
  if (notation.commas && notation.points)
    fail("data",
         "{}: expected numbers with points or numbers with commas, got both, the second in line {}: \"{}\"",
         origin, line, shortened(cell));
  return number;
}

/// Throws Error for a file whose names stand in one cell, and hold what is in the next line too, where it
/// cannot be part of a number.
void check_separator(std::string_view text, const std::vector<std::string>& header,
                     const std::string& origin) {
  if (header.size() > 1) return;
  const std::size_t begin = text.find('\n');
  if (begin == std::string_view::npos) return;
  const std::string_view next = text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
  const auto in_both = [&](char letter) {
    return header.front().find(letter) != std::string::npos && next.find(letter) != std::string_view::npos;
  };
  if (in_both('|')) fail("data", "{}: expected commas, semicolons or tabs between cells, got bars", origin);
  for (const auto& [letter, name] : {std::pair(';', "semicolons"), {'\t', "tabs"}})
    if (in_both(letter))
      fail("data", "{}: expected as many {} in the first row as in the header, got another number", origin,
           name);
}

std::size_t index_of_column(const std::vector<std::string>& header, const std::string& name, const char* key,
                            const std::string& origin) {
  const auto found = std::ranges::find(header, name);
  if (found == header.end()) {
    const std::string nearest = nearest_name(name, header);
    fail<UsageError>("data", "{}: expected {} among {}, got \"{}\"{}", origin, key, fmt::join(header, ", "),
                     name, nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
  }
  return static_cast<std::size_t>(found - header.begin());
}

/// What is read of each record.
struct Layout {
  std::optional<std::size_t> time;
  std::vector<std::size_t> columns;
};

/// `first` are the cells of the first record.
Layout layout_of(const std::vector<std::string>& header, const std::vector<std::string>& first,
                 const std::string& origin, const DataOptions& options) {
  Layout layout;
  if (!options.time.empty()) {
    layout.time = index_of_column(header, options.time, "data.time", origin);
  } else if (const auto time = parse_timestamp(without_blanks(first[0])); time && time->calendar) {
    layout.time = 0;
  }
  if (options.columns.empty()) {
    for (std::size_t i = 0; i < header.size(); ++i)
      if (i != layout.time) layout.columns.push_back(i);
    if (layout.columns.empty())
      fail("data", "{}: expected a column of numbers beside the time \"{}\", got none", origin, header[0]);
  }
  for (const std::string& name : comma_separated(options.columns)) {
    const std::size_t column = index_of_column(header, name, "data.columns", origin);
    if (std::ranges::find(layout.columns, column) != layout.columns.end())
      fail<UsageError>("data", "expected data.columns that differ, got \"{}\" twice", name);
    layout.columns.push_back(column);
  }
  return layout;
}

/// Throws UsageError where the columns have other names than `expected`, or another order.
void check_names(const std::vector<std::string>& expected, const std::vector<std::string>& columns,
                 const std::string& origin) {
  std::vector<std::string> found = columns;
  std::ranges::transform(found, found.begin(), as_json_text);
  if (expected.empty() || found == expected) return;
  const auto [wanted, got] = std::ranges::mismatch(expected, found);
  const auto name = [](const auto& at, const auto& end) {
    return at == end ? "none" : fmt::format("\"{}\"", *at);
  };
  fail<UsageError>(
      "data",
      "{}: expected the columns {} of the model, got {}: column {} is {} in the model and {} in the "
      "file",
      origin, fmt::join(expected, ", "), fmt::join(found, ", "), wanted - expected.begin() + 1,
      name(wanted, expected.end()), name(got, found.end()));
}

/// Adds the time of a record.
void add_time(Series& series, const std::string& cell, const std::string& column, std::int64_t line,
              const std::string& origin) {
  const std::optional<Timestamp> time = parse_timestamp(without_blanks(cell));
  if (!time)
    fail("data", "{}: expected a time in column \"{}\" of line {}, as 2016-07-01 12:30:00 or 42, got \"{}\"",
         origin, column, line, shortened(cell));
  if (series.times.empty()) {
    series.calendar = time->calendar;
    series.utc = time->utc;
  } else if (series.calendar != time->calendar || series.utc != time->utc)
    fail("data", "{}: expected {} in column \"{}\", as in the lines before, got \"{}\" in line {}", origin,
         !series.calendar ? "integers"
         : series.utc     ? "dates with their offset from UTC"
                          : "dates without an offset",
         column, cell, line);
  else if (time->value < series.times.back() && series.earlier_line == 0)
    series.earlier_line = line;
  series.times.push_back(time->value);
}

/// Adds the value of a cell. `fill` takes that of the row before for a missing one.
void add_value(Series& series, Notation& notation, const std::string& cell, const std::string& column,
               std::int64_t line, bool fill, const std::string& origin) {
  std::optional<double> number = number_of(cell, notation, line, origin);
  if (!number && is_missing(cell)) number = std::numeric_limits<double>::quiet_NaN();
  constexpr double largest = std::numeric_limits<float>::max();
  if (!number || std::abs(*number) > largest)
    fail("data", "{}: expected a number in column \"{}\" of line {}, got \"{}\"", origin, column, line,
         shortened(cell));
  if (!std::isnan(*number)) {
    const auto rounded = static_cast<float>(*number);
    ColumnRange& range = series.ranges[series.values.size() % series.columns.size()];
    range.least = std::min(range.least, *number);
    range.most = std::max(range.most, *number);
    range.rounding = std::max(range.rounding, std::abs(*number - double{rounded}));
    series.values.push_back(rounded);
    return;
  }
  const std::string_view word = without_blanks(cell), what = word.empty() ? "an empty cell" : word;
  if (!fill)
    fail("data",
         "{}: expected a number in column \"{}\" of line {}, got {}; data.missing = \"forward-fill\", or "
         "--missing forward-fill with a trained model, repeats the one before",
         origin, column, line, what);
  if (series.values.size() < series.columns.size())
    fail("data",
         "{}: expected a number in column \"{}\" of the first row to fill missing ones from, got {}; remove "
         "the rows before the first one in which every column has a number",
         origin, column, what);
  series.values.push_back(series.values[series.values.size() - series.columns.size()]);
}

/// How the times of a series go on behind its last row.
struct Stride {
  std::int64_t distance = 0;  ///< between rows, where it is not of months
  int months = 0;
  bool month_ends = false;
};

/// Nothing where the last three rows tell none. Months where these have the same day of the month, or are the
/// last days of their months. Months of 31 days in a row are distances of 31 days, too: the row before them
/// then decides.
std::optional<Stride> stride_of(const Series& series) {
  const auto count = static_cast<std::int64_t>(series.times.size());
  if (count < 3) return {};
  const auto at = [&](std::int64_t row) {
    return Timestamp{series.times[static_cast<std::size_t>(count - row)], series.calendar, series.utc};
  };
  const auto distance = [&](std::int64_t row) -> std::optional<std::int64_t> {
    std::int64_t between = 0;
    if (__builtin_sub_overflow(at(row - 1).value, at(row).value, &between)) return {};
    return between;
  };
  const auto months = [&](std::int64_t row) { return months_between(at(row), at(row - 1)); };
  const bool even = distance(2) && distance(2) == distance(3), monthly = months(2) && months(2) == months(3);
  const bool evenly_before = count > 3 && even && distance(4) == distance(2) && months(4) != months(2);
  if (monthly && !evenly_before)
    return Stride{.months = *months(2),
                  .month_ends = is_month_end(at(1)) && is_month_end(at(2)) && is_month_end(at(3))};
  if (!even) return {};
  return Stride{.distance = *distance(2)};
}

}  // namespace

std::string Series::time_text(std::int64_t row) const {
  const auto count = static_cast<std::int64_t>(times.size());
  const auto at = [&](std::int64_t i) {
    return Timestamp{times[static_cast<std::size_t>(i)], calendar, utc};
  };
  if (row < count) return timestamp_text(at(row));
  const std::optional<Stride> stride = stride_of(*this);
  if (!stride) return {};
  const std::int64_t beyond = row - count + 1;
  // The calendar of the standard library ends in the year 32,767.
  constexpr std::int64_t most_months = 12 * 20000;
  if (stride->months > 0 && beyond > most_months / stride->months) return {};
  if (stride->months > 0)
    return timestamp_text(
        months_later(at(count - 1), static_cast<int>(beyond) * stride->months, stride->month_ends));
  std::int64_t time = 0;
  if (__builtin_mul_overflow(beyond, stride->distance, &time) ||
      __builtin_add_overflow(time, times.back(), &time))
    fail("data", "expected times that go on within 64 bits, got {} steps after {}", beyond,
         timestamp_text(at(count - 1)));
  return timestamp_text({time, calendar, utc});
}

Series parse_series(std::string_view text, const std::string& origin, const DataOptions& options) {
  if (options.missing != "refuse" && options.missing != "forward-fill")
    fail<UsageError>("data", "expected data.missing among refuse, forward-fill, got \"{}\"", options.missing);
  Notation notation{.separator = csv_separator(text)};
  CsvReader csv(text, origin, notation.separator);
  const std::vector<std::string>& header = csv.header();
  const auto is_cell = [](const std::string& name) { return number_of(name) || parse_timestamp(name); };
  if (std::ranges::all_of(header, is_cell))
    fail("data", "{}: expected a header line with the names of columns, got numbers", origin);
  check_separator(text, header, origin);
  if (!csv.next()) fail("data", "{}: expected rows behind the header, got none", origin);
  const Layout layout = layout_of(header, csv.cells(), origin, options);
  Series series;
  for (const std::size_t column : layout.columns) series.columns.push_back(header[column]);
  check_names(options.column_names, series.columns, origin);
  series.ranges.resize(series.columns.size());
  if (layout.time) series.time = header[*layout.time];
  // A cell needs a byte of text at least, for a comma or the end of a line.
  const std::size_t lines = static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1,
                    numbers = std::min(lines * series.columns.size(), text.size() + 1);
  require_memory(origin, static_cast<double>(numbers * sizeof(float) + lines * sizeof(std::int64_t)));
  series.values.reserve(numbers);
  if (layout.time) series.times.reserve(lines);
  const bool fill = options.missing == "forward-fill";
  do {
    const std::vector<std::string>& cells = csv.cells();
    if (layout.time) add_time(series, cells[*layout.time], header[*layout.time], csv.line(), origin);
    for (const std::size_t column : layout.columns)
      add_value(series, notation, cells[column], header[column], csv.line(), fill, origin);
  } while (csv.next());
  return series;
}

std::string likely_time(const Series& series) {
  constexpr std::int64_t looked_at = 1000;
  const std::string name = in_small_letters(series.columns.front());
  const std::int64_t rows = std::min(series.rows(), looked_at);
  if (!series.time.empty() || rows < 2) return {};
  bool named = name.starts_with("time") || name.starts_with("date") || name == "unix" || name == "epoch" ||
               name == "ts";
  const auto at = [&](std::int64_t row) {
    return series.values[static_cast<std::size_t>(row) * series.columns.size()];
  };
  for (std::int64_t row = 0; named && row < rows; ++row)
    named = at(row) == std::floor(at(row)) && (row == 0 || at(row) >= at(row - 1));
  return named && at(rows - 1) > at(0) ? series.columns.front() : std::string();
}

}  // namespace linnet
