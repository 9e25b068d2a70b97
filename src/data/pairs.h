#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/random.h"
#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// Tokens of the kind "pairs" beside the bytes 0 … 255.
inline constexpr std::int32_t pair_separator = 256, pair_end = 257;
inline constexpr std::int64_t pair_vocabulary = 258;

struct Pair {
  std::string source, target;
};

/// `size` examples, the i-th of which is pair_of(i), called from any thread. An example has the bytes of the
/// source, the separator, the bytes of the target and the end, and is padded. The bytes of the target and the
/// end count in the loss. With options.source_length the bytes of the source are the example's source, and
/// its tokens are those of the target and the end. Pairs that do not fit the options are the caller's to
/// refuse.
std::unique_ptr<Dataset> pair_dataset(std::int64_t size, std::function<Pair(std::int64_t)> pair_of,
                                      const DataOptions& options);

/// The kind "pairs" of open_datasets: lines source<tab>target.
Datasets open_pairs(const DataOptions& options, const Parts& parts);

}  // namespace linnet
