#pragma once

#include <memory>
#include <string>

#include "data/series.h"
#include "linnet/model.h"

namespace linnet {

/// A model of a series, and the series of a CSV file in the columns that it was trained on.
struct SeriesInput {
  std::shared_ptr<const Model> model;
  DataOptions options;  ///< of the model's run
  Series series;
};

/// Reads both for a command of that name; an empty `data` takes that of the run. Columns, time and missing
/// cells are those of the run; a model without a run takes all columns of the file. Throws UsageError for a
/// model that does not predict the next numbers of a series, and for columns that do not fit it.
SeriesInput read_series_input(const char* command, const std::string& model, const std::string& data);

}  // namespace linnet
