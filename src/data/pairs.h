#pragma once

#include <cstdint>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// Tokens of the kind "pairs" beside the bytes 0 … 255.
inline constexpr std::int32_t pair_separator = 256, pair_end = 257;
inline constexpr std::int64_t pair_vocabulary = 258;

/// The kind "pairs" of open_datasets: lines source<tab>target. An example has the bytes of the source, the
/// separator, the bytes of the target and the end, and is padded. The bytes of the target and the end count
/// in the loss.
Datasets open_pairs(const DataOptions& options, const Parts& parts);

}  // namespace linnet
