#pragma once

#include <cstdint>
#include <string>

#include "linnet/dataset.h"
#include "series/input.h"

namespace linnet {

/// What a command reads for a model of a series.
struct CommandSeries : SeriesInput {
  std::int64_t calibrate = 0;  ///< rows of the training part, where the series is that of the run; or 0
};

/// Reads both for a command of that name; an empty `data` takes that of the run. Columns, time and missing
/// cells are those of the run, which a converted model keeps; another takes all columns of the file. Throws
/// UsageError as `series_input` does, and for columns that are not those of the run. `missing` is what to do
/// with missing cells, as data.missing; empty: as the run does.
CommandSeries read_series_input(const char* command, const std::string& model, const std::string& data,
                                const std::string& missing);

}  // namespace linnet
