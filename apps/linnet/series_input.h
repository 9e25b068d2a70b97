#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/series.h"
#include "linnet/model.h"

namespace linnet {

/// A model of a series, and the series of a CSV file in the columns that it was trained on. A stream of the
/// model takes `row_columns()` columns of a row; a model of one column serves one stream for each.
struct SeriesInput {
  std::shared_ptr<const Model> model;
  DataOptions options;  ///< of the model's run
  Series series;
  ColumnStatistics applied;    ///< as Dataset::applied_statistics
  std::int64_t calibrate = 0;  ///< rows of the training part, where the series is that of the run; or 0

  /// Rows in a step of the model.
  std::int64_t patch() const { return model->config().patch; }
  std::int64_t row_columns() const { return model->config().columns / patch(); }
  std::int64_t streams() const { return std::ssize(series.columns) / row_columns(); }
  /// Rows that a step predicts.
  std::int64_t horizon() const { return model->config().target_count() / row_columns(); }

  /// What the model takes for a number of a column of the data, and back.
  float to_model(double number, std::int64_t column) const;
  double from_model(double number, std::int64_t column) const;
  /// A deviation of 1 of the model's numbers in units of the data.
  double deviation(std::int64_t column) const;

  /// The step [patch, row_columns] of a stream that begins at a row.
  std::vector<float> step(std::int64_t row, std::int64_t stream) const;
};

/// Reads both for a command of that name; an empty `data` takes that of the run. Columns, time and missing
/// cells are those of the run, which a converted model keeps; another takes all columns of the file. Throws
/// UsageError for a model that does not predict the next numbers of a series, for one whose steps have more
/// rows than they predict, and for columns that are not those of the run. `missing` is what to do with
/// missing cells, as data.missing; empty: as the run does.
SeriesInput read_series_input(const char* command, const std::string& model, const std::string& data,
                              const std::string& missing);

}  // namespace linnet
