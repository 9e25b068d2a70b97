#pragma once

#include "linnet/mask.h"

namespace linnet {

/// The first i in [0, count) for which `after(i)` holds, which it then does for all that follow; or count.
template <class Condition>
std::int64_t first_where(std::int64_t count, const Condition& after) {
  std::int64_t low = 0;
  while (low < count) {
    const std::int64_t middle = low + (count - low) / 2;
    if (after(middle))
      count = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Whether queries and keys are the same tokens, so that their numbers must be equal.
inline bool queries_are_keys(const Mask& mask) {
  return mask.kind() == Mask::Kind::causal || mask.kind() == Mask::Kind::prefix ||
         mask.kind() == Mask::Kind::window || mask.has_segments();
}

/// The number of keys of batch entry b that are not padding.
inline std::int64_t visible_keys(const Mask& mask, std::int64_t b, std::int64_t keys) {
  return mask.key_lengths().empty() ? keys : mask.key_lengths()[static_cast<std::size_t>(b)];
}

/// The segment [begin, end) of query or key i; without segments the whole sequence.
Mask::Interval segment_of(const Mask& mask, std::int64_t b, std::int64_t i, std::int64_t keys);

/// The queries, of `queries`, that see key j. This is also an interval whose bounds never decrease with j.
/// O(log N) time.
Mask::Interval seen_by(const Mask& mask, std::int64_t b, std::int64_t j, std::int64_t queries,
                       std::int64_t keys);

}  // namespace linnet
