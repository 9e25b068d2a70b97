#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// The kinds "text" and "bytes" of open_datasets, their options checked.
Datasets open_text(const DataOptions& options, const Parts& parts);

/// Every window of `length` bytes; all of them count.
std::unique_ptr<Dataset> every_window(std::string text, std::int64_t length);

/// Windows that overlap by half, of which every byte counts in exactly one.
std::unique_ptr<Dataset> overlapping_windows(std::string text, std::int64_t length);

}  // namespace linnet
