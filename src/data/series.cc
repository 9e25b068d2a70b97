#include "data/series.h"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "data/division.h"
#include "data/files.h"
#include "data/selection.h"
#include "data/statistics.h"
#include "data/timestamp.h"
#include "data/windows.h"
#include "io/file.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

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

/// Of the rows of the stretches.
ColumnStatistics statistics_of(const AllSeries& all, const std::vector<Stretch>& stretches) {
  const std::size_t columns = all.front().columns.size();
  return statistics_of_rows(columns, [&](const auto& visit) {
    for (const Stretch& stretch : stretches)
      for (std::int64_t row = stretch.begin; row < stretch.end; ++row)
        visit(all[stretch.source].values.data() + static_cast<std::size_t>(row) * columns);
  });
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
}

}  // namespace

const Series* first_series(const Dataset& dataset) {
  const auto* series = opened_as<SeriesDataset>(dataset);
  return series != nullptr ? &series->first() : nullptr;
}

std::vector<SeriesStretch> series_stretches(const Dataset& dataset) {
  const auto* series = opened_as<SeriesDataset>(dataset);
  return series != nullptr ? series->stretches() : std::vector<SeriesStretch>();
}

std::optional<SeriesForm> series_form(const Dataset& dataset) {
  const auto* series = opened_as<SeriesDataset>(dataset);
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

  // A part that has files, or contents, of its own.
  const auto whole = [&](const std::vector<fs::path>& own, std::shared_ptr<const std::string> contents,
                         const char* part) {
    DataOptions of_part = options;
    of_part.contents = std::move(contents);
    const auto read = std::make_shared<const AllSeries>(read_all(own, of_part, series->front().columns));
    return evaluated(read, whole_files(*read, own, options), part, own, setting);
  };
  Datasets datasets;
  if (parts.training)
    datasets.training = std::make_unique<SeriesDataset>(
        series, Windows::every(std::move(training), options.length * options.patch), 0, setting);
  if (parts.validation)
    datasets.validation =
        options.validation.empty()
            ? evaluated(series, std::move(validation), "validation", files, setting)
            : whole(files_named("data.validation", options.validation, options.kind), nullptr, "validation");
  if (parts.test && options.test_contents)
    datasets.test = whole(files, options.test_contents, "test");
  else if (parts.test && !options.test.empty())
    datasets.test = whole(files_named("data.test", options.test, options.kind), nullptr, "test");
  else if (parts.test && !test.empty())
    datasets.test = evaluated(series, std::move(test), "test", files, setting);
  return datasets;
}

}  // namespace linnet
