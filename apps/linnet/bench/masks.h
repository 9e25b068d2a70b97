#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linnet/mask.h"

namespace linnet {

/// Sizes of the masks that `bench attention` measures.
struct BenchMaskSizes {
  std::int64_t left = 1023, right = 0;  ///< of window, and of intervals at the widest
  std::int64_t prefix = 1024;           ///< keys that all see; at most the length
  std::int64_t segment = 1024;          ///< length of each packed sequence
};

/// Names that `bench_mask` knows.
const std::vector<std::string>& bench_mask_names();

/// full, causal, prefix and window; segments: causal in each of them; intervals: windows whose width swings
/// between half of left and all of it; boolean: blocks of 64 × 64, of which a query sees its own, the one
/// before and every eighth before that.
Mask bench_mask(const std::string& name, const BenchMaskSizes& sizes, std::int64_t length);

/// Pairs of a query and a key that it sees, of one sequence under `bench_mask`.
double visible_pairs(const std::string& name, const BenchMaskSizes& sizes, std::int64_t length);

}  // namespace linnet
