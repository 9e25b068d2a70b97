#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linnet/export.h"
#include "linnet/model.h"
#include "linnet/tensor.h"

// What follows a series of real numbers, and how probable it is: forecasts, scores and anomalies of a model
// that predicts the next numbers of its columns (data.kind = "series"). All numbers are in the units of the
// data, also of a model whose columns are sequences of their own (data.columns_apart).

namespace linnet {

/// Names of the columns of the series that the model was trained with, as its files have them; empty for
/// other models. Throws Error where the description that the model holds (ModelAssets::columns) is damaged.
LINNET_API std::vector<std::string> column_names(const Model& model);

/// A series beside the model that reads it. Cheap to copy; immutable.
class LINNET_API ModelSeries {
 public:
  /// Numbers in memory, [rows, columns], in the columns that the model was trained with; they are copied. NaN
  /// stands for a number that is not known. A model that keeps no statistics takes them as they are. Throws
  /// UsageError for a model that predicts no next numbers of a series, or fewer rows at once than its steps
  /// have; and for numbers of other columns than the model's, without rows or memory, or infinite; and for no
  /// model.
  ModelSeries(std::shared_ptr<const Model> model, View<const float> values);

  /// A CSV file, read as the model's training data were (docs/commands/train.md), whose columns are found by
  /// their names. `missing` is what to do with empty cells, as data.missing; empty: as in training. Throws as
  /// above, Error for a file that cannot be read, and UsageError for one without those columns.
  static ModelSeries read(std::shared_ptr<const Model> model, const std::filesystem::path& csv,
                          const std::string& missing = "");

  /// The same of the contents of a CSV file; `origin` stands for it in errors.
  static ModelSeries parse(std::shared_ptr<const Model> model, std::string_view csv,
                           const std::string& origin, const std::string& missing = "");

  std::int64_t rows() const;
  /// Names of the columns; "0", "1" … where the model knows none.
  const std::vector<std::string>& column_names() const;
  /// [rows, columns].
  std::span<const float> values() const;
  /// The time of a row as text. Of one behind the last, where the last three rows have equal distances, or
  /// are months apart. Empty otherwise, without times, and behind the year 30,000. Throws UsageError for a
  /// row below 0, Error for a time that 64 bits do not hold.
  std::string time(std::int64_t row) const;

  struct Impl;
  /// For Linnet's own modules.
  const Impl& impl() const { return *impl_; }

 private:
  explicit ModelSeries(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

/// Called with how much of a work is done; what it throws ends the work.
using SeriesProgress = std::function<void(std::int64_t done, std::int64_t all)>;

struct ForecastOptions {
  std::int64_t steps = 24;     ///< rows to forecast
  std::int64_t samples = 200;  ///< draws, 1 … 65,536; a model of squared errors predicts means, once
  /// Last rows that the model reads, in whole steps of it; 0: those of a training example.
  std::int64_t context = 0;
  std::uint64_t seed = 0;
  double temperature = 1;  ///< the scales of the densities are multiplied by it
  int threads = 0;         ///< 0: one per processor
  SeriesProgress progress = {};
};

/// Draws of the rows behind the last one of a series, [samples, steps, columns]; one of means where the model
/// predicts means alone (model.value_head = "squared-error"). Sample i is that of the seed `seed` + i. Throws
/// UsageError for options outside their range, fewer rows than a step has and more steps than learned
/// positions leave, Error for predictions that are not finite.
LINNET_API std::vector<float> forecast(const ModelSeries& series, const ForecastOptions& options = {});

/// −log densities of the numbers of a series, in nats, each given the steps before its own.
struct SeriesScores {
  std::int64_t columns = 0;
  std::vector<double> numbers;  ///< [rows, columns]; NaN of a number that is not known
  /// The sums over the known numbers, which are low where some are not known; NaN where none is.
  std::vector<double> rows;
  /// Whether the model has read anything before a row: a score that nothing stands behind says nothing.
  std::vector<bool> has_context;
  std::int64_t state_bytes = 0;  ///< of the model's streams, at the end
};

/// The scores of all rows, read as a stream, whose state does not grow in the linear family. A model of
/// squared errors scores by normal densities of one deviation of the training data. Throws Error for a row
/// whose score is not finite.
LINNET_API SeriesScores score(const ModelSeries& series, int threads = 0,
                              const SeriesProgress& progress = {});

struct AnomalyOptions {
  std::int64_t window = 1;  ///< scores are means over so many last rows
  /// Score above which a row is part of an anomaly. NaN: what the share `quantile` of the first `calibrate`
  /// rows lies below (0: of all rows). Where too few rows lie above to tell, the tail is taken as exponential
  /// (Siffer et al., "Anomaly detection in streams with extreme value theory", 2017, section 3.3).
  double threshold = std::numeric_limits<double>::quiet_NaN();
  double quantile = 0.9999;
  std::int64_t calibrate = 0;
  std::int64_t gap = 50;  ///< most rows between two rows of one anomaly
};

/// Rows first … last.
struct Anomaly {
  std::int64_t first = 0, last = 0;
  double highest = 0;  ///< score
  /// Whose scores lie furthest above their mean in the calibrating rows.
  std::int64_t column = 0;
};

struct Anomalies {
  std::vector<double> scores;  ///< of every row, means over the known ones of the window; NaN without any
  double threshold = 0;
  std::vector<Anomaly> found;
};

/// Rows without a known number take no part. Throws UsageError for scores whose sizes do not fit each other
/// or that are infinite, options outside their range, and where no calibrating row with known numbers has a
/// context.
LINNET_API Anomalies find_anomalies(const SeriesScores& scores, const AnomalyOptions& options = {});

}  // namespace linnet
