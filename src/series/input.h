#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/series.h"
#include "linnet/model.h"
#include "linnet/series.h"
#include "training/run_columns.h"

namespace linnet {

/// A model of a series, and a series in the columns that it was trained with. A stream of the model takes
/// `row_columns()` columns of a row; a model of one column serves one stream for each.
struct SeriesInput {
  std::shared_ptr<const Model> model;
  Series series;
  ColumnStatistics applied = {};  ///< as Dataset::applied_statistics

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

struct ModelSeries::Impl : SeriesInput {};

/// Throws UsageError, naming `command`, for a model that does not predict the next numbers of a series, and
/// for one whose steps have more rows than they predict.
void check_series_model(const char* command, const ModelConfig& config);

/// Throws UsageError, naming `command`, for a model that reads numbers which are normalised by statistics
/// that its files, which `columns` are of, do not hold.
void check_statistics(const char* command, const Model& model, const std::optional<RunColumns>& columns);

/// The two together; `columns` are those of the model's files. Throws UsageError, naming `command`, for a
/// series with another number of columns. `origin` stands for the series in errors.
SeriesInput series_input(const char* command, std::shared_ptr<const Model> model,
                         const std::optional<RunColumns>& columns, Series series, const std::string& origin);

}  // namespace linnet
