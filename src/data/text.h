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

/// Bytes of the part of a text that is for training where there is a tokenizer: the first 90 %, up to the end
/// of a character of UTF-8.
std::size_t training_bytes(std::string_view text);

/// Windows that overlap by half, of which every byte counts in exactly one.
std::unique_ptr<Dataset> overlapping_windows(std::string text, std::int64_t length);

}  // namespace linnet
