#include "attention/cost.h"

#include <algorithm>

#include "attention/family.h"

namespace linnet {

double multiplied_pairs(const AttentionOptions& options, const Mask& mask, std::int64_t length) {
  return entry_of(options.family).multiplied_pairs(options, mask, length);
}

AttentionCost least_cost(const AttentionOptions& options, const CostSizes& sizes, double pairs) {
  return entry_of(options.family).least_cost(options, sizes, pairs);
}

double step_keys(const AttentionOptions& options, double visible) {
  return entry_of(options.family).step_keys(options, visible);
}

double pairs_within(const Mask& mask, std::int64_t length, std::int64_t left, std::int64_t right) {
  double pairs = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const Mask::Interval seen = mask.interval(0, i, length);
    const std::int64_t begin = std::max(seen.begin, i - left), end = std::min(seen.end, i + right + 1);
    pairs += static_cast<double>(std::max<std::int64_t>(0, end - begin));
  }
  return pairs;
}

double all_pairs(const AttentionOptions&, const Mask& mask, std::int64_t length) {
  return pairs_within(mask, length, length, length);
}

double no_pairs(const AttentionOptions&, const Mask&, std::int64_t) { return 0; }

AttentionCost cost_of_pairs(const AttentionOptions&, const CostSizes& sizes, double pairs) {
  const double e = static_cast<double>(sizes.head_dim), m = static_cast<double>(sizes.value_dim);
  return {pairs * 2 * (e + m), pairs * (8 * e + 6 * m)};
}

double all_keys(const AttentionOptions&, double visible) { return visible; }

}  // namespace linnet
