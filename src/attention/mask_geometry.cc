#include "attention/mask_geometry.h"

#include <algorithm>

namespace linnet {

Mask::Interval segment_of(const Mask& mask, std::int64_t b, std::int64_t i, std::int64_t keys) {
  if (!mask.has_segments()) return {0, keys};
  const std::vector<std::int64_t>& bounds = mask.segment_bounds(b);
  const auto after = std::upper_bound(bounds.begin(), bounds.end(), i);
  return {*(after - 1), *after};
}

Mask::Interval seen_by(const Mask& mask, std::int64_t b, std::int64_t j, std::int64_t queries,
                       std::int64_t keys) {
  const std::int64_t begin =
      first_where(queries, [&](std::int64_t i) { return mask.interval(b, i, keys).end > j; });
  const std::int64_t end =
      first_where(queries, [&](std::int64_t i) { return mask.interval(b, i, keys).begin > j; });
  return {begin, std::max(begin, end)};
}

}  // namespace linnet
