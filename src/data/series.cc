#include "data/series.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/lists.h"
#include "base/memory.h"
#include "base/names.h"
#include "data/division.h"
#include "data/files.h"
#include "data/timestamp.h"
#include "data/windows.h"
#include "io/csv.h"
#include "io/file.h"
#include "io/json.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

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

using AllSeries = std::vector<Series>;

Series read_series(const fs::path& path, const DataOptions& options) {
  if (options.contents) return parse_series(*options.contents, path.string(), options);
  return parse_series(read_file(path), path.string(), options);
}

/// The files, all with the same columns.
AllSeries read_all(const std::vector<fs::path>& files, const DataOptions& options,
                   const std::vector<std::string>& columns = {}) {
  AllSeries all;
  for (const fs::path& path : files) {
    all.push_back(read_series(path, options));
    const std::vector<std::string>& expected = columns.empty() ? all.front().columns : columns;
    if (all.back().columns != expected)
      fail("data", "{}: expected the columns {} of the other files, got {}", path.string(),
           fmt::join(expected, ", "), fmt::join(all.back().columns, ", "));
  }
  return all;
}

Division divide_series(const Series& series, const std::string& split, const std::string& origin) {
  RowOfTime row_of_time;
  if (!series.times.empty())
    row_of_time = [&](const std::string& text) -> std::optional<std::int64_t> {
      const std::optional<Timestamp> time = parse_timestamp(text);
      if (!time || time->calendar != series.calendar) return {};
      if (series.earlier_line > 0)
        fail("data",
             "{}: expected times that do not decrease for data.split = \"{}\", got an earlier one than "
             "before in "
             "line {}; fractions divide any series",
             origin, split, series.earlier_line);
      return std::ranges::lower_bound(series.times, time->value) - series.times.begin();
    };
  return divide(split, series.rows(), origin, row_of_time);
}

/// Mean and population deviation of the rows of the stretches.
ColumnStatistics statistics_of(const AllSeries& all, const std::vector<Stretch>& stretches) {
  const std::size_t columns = all.front().columns.size();
  const auto for_each_value = [&](const auto& visit) {
    for (const Stretch& stretch : stretches)
      for (std::int64_t row = stretch.begin; row < stretch.end; ++row)
        for (std::size_t c = 0; c < columns; ++c)
          visit(c, double{all[stretch.source].values[static_cast<std::size_t>(row) * columns + c]});
  };
  double rows = 0;
  for (const Stretch& stretch : stretches) rows += static_cast<double>(stretch.end - stretch.begin);
  ColumnStatistics result{std::vector<double>(columns), std::vector<double>(columns)};
  for_each_value([&](std::size_t c, double value) { result.mean[c] += value; });
  for (double& mean : result.mean) mean /= rows;
  for_each_value([&](std::size_t c, double value) {
    result.deviation[c] += (value - result.mean[c]) * (value - result.mean[c]);
  });
  for (double& deviation : result.deviation) deviation = std::sqrt(deviation / rows);
  return result;
}

/// Throws Error where f32 has not enough digits for the numbers of a column, which vary little beside their
/// size.
void check_digits(const AllSeries& all, const std::vector<fs::path>& files) {
  constexpr double least_levels = 64;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t c = 0; c < all[i].columns.size(); ++c)
      if (const ColumnRange& range = all[i].ranges[c];
          range.rounding > 0 && range.most > range.least &&
          range.rounding * least_levels > range.most - range.least)
        fail("data",
             "{}: expected numbers that f32 can hold in column \"{}\", got {} … {}, which it rounds by up to "
             "{:.3g}; subtract a constant from them",
             files[i].string(), all[i].columns[c], range.least, range.most, range.rounding);
}

/// What the parts of a series share.
struct Setting {
  std::int64_t length = 0, horizon = 0, patch = 1;
  bool apart = false;           ///< whether every column is a sequence of its own
  ColumnStatistics statistics;  ///< of the training part
  SeriesForm form;
};

/// The same statistics for each of several rows.
ColumnStatistics repeated(const ColumnStatistics& statistics, std::int64_t rows) {
  ColumnStatistics result;
  for (std::int64_t i = 0; i < rows; ++i) {
    result.mean.insert(result.mean.end(), statistics.mean.begin(), statistics.mean.end());
    result.deviation.insert(result.deviation.end(), statistics.deviation.begin(), statistics.deviation.end());
  }
  return result;
}

class SeriesDataset final : public Dataset {
 public:
  /// A target counts where it lies less than `beyond` steps behind the end of its stretch.
  SeriesDataset(std::shared_ptr<const AllSeries> series, Windows windows, std::int64_t beyond,
                std::shared_ptr<const Setting> setting)
      : series_(std::move(series)),
        windows_(std::move(windows)),
        beyond_(beyond),
        setting_(std::move(setting)) {}

  const Series& first() const { return series_->front(); }
  const SeriesForm& form() const { return setting_->form; }
  std::vector<SeriesStretch> stretches() const {
    std::vector<SeriesStretch> result;
    for (const auto& [source, begin, end] : windows_.stretches()) {
      const Series& file = (*series_)[source];
      result.push_back({source, begin, end, file.time_text(begin), file.time_text(end - 1)});
    }
    return result;
  }

  std::int64_t size() const override {
    return windows_.size() * (setting_->apart ? std::ssize(column_names()) : 1);
  }
  std::int64_t length() const override { return setting_->length; }
  std::int64_t vocabulary() const override { return 0; }
  std::int64_t columns() const override { return setting_->patch * row_columns(); }
  std::int64_t target_columns() const override { return setting_->horizon * row_columns(); }
  ColumnStatistics column_statistics() const override { return repeated(row_statistics(), setting_->patch); }
  ColumnStatistics target_statistics() const override {
    return repeated(row_statistics(), setting_->horizon);
  }
  std::vector<std::string> column_names() const override { return series_->front().columns; }
  std::int64_t patch() const override { return setting_->patch; }
  std::int64_t first_column(std::int64_t index) const override {
    return setting_->apart ? index / windows_.size() : 0;
  }
  ColumnStatistics applied_statistics() const override {
    return setting_->apart ? setting_->statistics : ColumnStatistics{};
  }

  std::int64_t read(std::int64_t, std::span<std::int32_t>, std::span<std::int32_t>) const override {
    return -1;
  }

  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    const Window window = windows_[setting_->apart ? index % windows_.size() : index];
    const Series& series = (*series_)[window.source];
    const std::int64_t first = first_column(index), patch = setting_->patch;
    assert(values.size() == static_cast<std::size_t>(length() * columns()));
    assert(targets.size() == static_cast<std::size_t>(length() * target_columns()));
    auto value = values.begin(), target = targets.begin();
    constexpr float nothing = std::numeric_limits<float>::quiet_NaN();
    const auto copy = [&](std::int64_t row, bool known, auto to) {
      for (std::int64_t c = first; c < first + row_columns(); ++c)
        *to++ = known ? number(series, row, static_cast<std::size_t>(c)) : nothing;
      return to;
    };
    for (std::int64_t step = 0; step < length(); ++step) {
      const std::int64_t begin = window.begin + step * patch;
      for (std::int64_t row = begin; row < begin + patch; ++row)
        value = copy(row, row < series.rows(), value);
      const bool counts = begin >= window.counts_from && begin < window.end;
      for (std::int64_t row = begin; row < begin + setting_->horizon; ++row)
        target = copy(row, counts && row < window.end + beyond_, target);
    }
  }

 private:
  /// Columns of a sequence.
  std::int64_t row_columns() const {
    return setting_->apart ? 1 : static_cast<std::int64_t>(setting_->statistics.mean.size());
  }

  ColumnStatistics row_statistics() const {
    return setting_->apart ? ColumnStatistics{{0}, {1}} : setting_->statistics;
  }

  float number(const Series& series, std::int64_t row, std::size_t column) const {
    const float value = series.values[static_cast<std::size_t>(row) * series.columns.size() + column];
    if (!setting_->apart) return value;
    const auto& [mean, deviation] = setting_->statistics;
    return static_cast<float>((value - mean[column]) / (deviation[column] > 0 ? deviation[column] : 1));
  }

  std::shared_ptr<const AllSeries> series_;
  Windows windows_;
  std::int64_t beyond_;
  std::shared_ptr<const Setting> setting_;
};

/// The rows of a window, for people.
std::string window_rows(const DataOptions& options) {
  if (options.patch == 1) return fmt::format("data.length = {}", options.length);
  return fmt::format("data.length · data.patch = {}", options.length * options.patch);
}

/// Steps of the training part of each file: a window at least.
void check_training(const std::vector<Stretch>& stretches, const std::vector<fs::path>& files,
                    const DataOptions& options) {
  for (const Stretch& stretch : stretches)
    if (const std::int64_t rows = stretch.end - stretch.begin; rows < options.length * options.patch)
      fail("data", "{}: expected a training part of at least {} rows, got {}", files[stretch.source].string(),
           window_rows(options), rows);
}

/// All steps of every file, which hold a window at least.
std::vector<Stretch> whole_files(const AllSeries& all, const std::vector<fs::path>& files,
                                 const DataOptions& options) {
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].rows() < options.length * options.patch)
      fail("data", "{}: expected at least {} rows, got {}", files[i].string(), window_rows(options),
           all[i].rows());
    stretches.push_back({i, 0, all[i].rows()});
  }
  return stretches;
}

/// For validation or testing: the steps from which all targets lie inside their stretch count.
std::unique_ptr<Dataset> evaluated(std::shared_ptr<const AllSeries> series, std::vector<Stretch> stretches,
                                   const char* part, const std::vector<fs::path>& files,
                                   const std::shared_ptr<const Setting>& setting) {
  for (Stretch& stretch : stretches) {
    const std::int64_t steps = stretch.end - stretch.begin;
    if (steps < setting->horizon)
      fail("data", "{}: expected a {} part of at least data.horizon = {} rows, got {}",
           files[stretch.source].string(), part, setting->horizon, steps);
    stretch.end -= setting->horizon - 1;
  }
  const std::int64_t patch = setting->patch;
  Windows windows = patch == 1
                        ? Windows::overlapping(std::move(stretches), setting->length)
                        : Windows::ending_at_each(std::move(stretches), setting->length * patch, patch);
  return std::make_unique<SeriesDataset>(std::move(series), std::move(windows), setting->horizon - 1,
                                         setting);
}

void check_options(const DataOptions& options) {
  constexpr std::int64_t longest = std::int64_t{1} << 30, most_horizon = 1 << 16, most_patch = 1 << 16;
  if (options.length < 2 || options.length > longest)
    fail<UsageError>("data", "expected data.length of 2 to {} for a series, got {}", longest, options.length);
  if (options.patch < 1 || options.patch > most_patch)
    fail<UsageError>("data", "expected data.patch of 1 to {}, got {}", most_patch, options.patch);
  if (options.horizon < 1 || options.horizon > most_horizon)
    fail<UsageError>("data", "expected data.horizon of 1 to {}, got {}", most_horizon, options.horizon);
  if (options.missing != "refuse" && options.missing != "forward-fill")
    fail<UsageError>("data", "expected data.missing among refuse, forward-fill, got \"{}\"", options.missing);
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

const Series* first_series(const Dataset& dataset) {
  const auto* series = dynamic_cast<const SeriesDataset*>(&dataset);
  return series != nullptr ? &series->first() : nullptr;
}

std::vector<SeriesStretch> series_stretches(const Dataset& dataset) {
  const auto* series = dynamic_cast<const SeriesDataset*>(&dataset);
  return series != nullptr ? series->stretches() : std::vector<SeriesStretch>();
}

std::optional<SeriesForm> series_form(const Dataset& dataset) {
  const auto* series = dynamic_cast<const SeriesDataset*>(&dataset);
  if (series == nullptr) return std::nullopt;
  return series->form();
}

SeriesForm series_form(const DataOptions& options) {
  return {.columns = options.columns,
          .time = options.time,
          .missing = options.missing == DataOptions().missing ? "" : options.missing,
          .split = options.validation.empty() ? split_of(options) : ""};
}

std::int64_t training_rows(const Series& series, const DataOptions& options, const std::string& origin) {
  const std::string split = split_of(options);
  return options.validation.empty() ? divide_series(series, split, origin).training : series.rows();
}

Datasets open_series(const DataOptions& options, const Parts& parts) {
  check_options(options);
  const std::vector<fs::path> files = options.contents ? std::vector<fs::path>{"the table"}
                                                       : files_named("data.path", options.path, options.kind);
  // They are read in any case, for the statistics of the training part and the names of the columns.
  const auto series = std::make_shared<const AllSeries>(read_all(files, options));
  std::vector<Stretch> training, validation, test;
  const std::string split = split_of(options);
  const bool tests_alone = !options.test.empty() || options.test_contents;
  if (!parts.training && !parts.validation && tests_alone && (options.statistics || !options.columns_apart)) {
    // Nothing of these files counts.
    for (std::size_t i = 0; i < series->size(); ++i) training.push_back({i, 0, (*series)[i].rows()});
  } else if (!options.validation.empty()) {
    training = whole_files(*series, files, options);
  } else {
    for (std::size_t i = 0; i < series->size(); ++i) {
      const Division division = divide_series((*series)[i], split, files[i].string());
      training.push_back({i, 0, division.training});
      validation.push_back({i, division.training, division.validation});
      if (division.validation < division.test) test.push_back({i, division.validation, division.test});
    }
    check_training(training, files, options);
  }
  auto setting = std::make_shared<Setting>();
  setting->length = options.length;
  setting->horizon = options.horizon;
  setting->patch = options.patch;
  setting->apart = options.columns_apart;
  check_digits(*series, files);
  const bool given = options.columns_apart && options.statistics;
  setting->statistics = given ? *options.statistics : statistics_of(*series, training);
  if (setting->statistics.mean.size() != series->front().columns.size())
    fail<UsageError>("data", "{}: expected {} columns as the model has, got {}", files[0].string(),
                     setting->statistics.mean.size(), series->front().columns.size());
  setting->form = series_form(options);

  const auto own_files = [&](const char* key, const std::string& value, const char* part) {
    const std::vector<fs::path> own = files_named(key, value, options.kind);
    DataOptions of_files = options;
    of_files.contents.reset();
    const auto read = std::make_shared<const AllSeries>(read_all(own, of_files, series->front().columns));
    return evaluated(read, whole_files(*read, own, options), part, own, setting);
  };
  Datasets datasets;
  if (parts.training)
    datasets.training = std::make_unique<SeriesDataset>(
        series, Windows::every(std::move(training), options.length * options.patch), 0, setting);
  if (parts.validation)
    datasets.validation = options.validation.empty()
                              ? evaluated(series, std::move(validation), "validation", files, setting)
                              : own_files("data.validation", options.validation, "validation");
  if (parts.test && options.test_contents) {
    DataOptions of_test = options;
    of_test.contents = options.test_contents;
    const auto read = std::make_shared<const AllSeries>(read_all(files, of_test, series->front().columns));
    datasets.test = evaluated(read, whole_files(*read, files, options), "test", files, setting);
  } else if (parts.test && !options.test.empty())
    datasets.test = own_files("data.test", options.test, "test");
  else if (parts.test && !test.empty())
    datasets.test = evaluated(series, std::move(test), "test", files, setting);
  return datasets;
}

}  // namespace linnet
