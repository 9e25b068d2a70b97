#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "linnet/dataset.h"

namespace linnet {

/// Where the parts of a sequence of steps end. Training begins at 0 and validation where training ends.
struct Division {
  std::int64_t training = 0, validation = 0, test = 0;
};

/// data.split, or its default: "0.8,0.9", and "0.9" where data.test takes the place of the last part. Throws
/// UsageError where data.validation is given, too. Of data with files for validation the whole of data.path
/// is for training.
std::string split_of(const DataOptions& options);

/// The row that begins at a time; nothing for a text that is no time of the sequence.
using RowOfTime = std::function<std::optional<std::int64_t>(const std::string&)>;

/// Divides `steps` steps as data.split says: the ends of training, validation and test with commas between
/// them, as fractions of all steps, each to the nearest step, or as times. Validation goes on to the end
/// where its own is missing, and so does the test part. The test part may be empty, the others may not.
/// Throws UsageError, naming `origin`, for any other text and for ends that do not increase.
Division divide(const std::string& split, std::int64_t steps, const std::string& origin,
                const RowOfTime& row_of_time = {});

}  // namespace linnet
