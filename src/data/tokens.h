#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// The kind "tokens" of open_datasets: token ids of the user's own in files (data/token_file.h).
///
/// A piece of a file with offsets longer than `length` has windows of `length` steps in training, as few as
/// overlap by half or more, evenly spaced. A file without offsets is one sequence, of which every window is a
/// training example. In validation and in testing windows of either overlap in the same way, and every step
/// counts exactly once: those that the window before has not reached. Shorter sequences are padded. Without
/// files for validation every tenth piece is held out, and the last tenth of a file without offsets.
Datasets open_tokens(const DataOptions& options, const Parts& parts);

/// Bytes of a token of the first file of such data where it is a .bin file; 2, the default, of all others.
std::int64_t raw_token_bytes(const Dataset& dataset);

/// The number of values of each field of a value of data.fields, "50,30"; none where it is empty. Throws
/// UsageError for anything else.
std::vector<std::int64_t> field_sizes(const std::string& fields);

/// The files of a value of data.path, without the offsets of NumPy files among them.
std::vector<std::filesystem::path> token_files(const char* key, const std::string& value);

}  // namespace linnet
