#include "attention/visible.h"

#include <algorithm>

#include "base/parallel.h"

namespace linnet {

Sights::Sights(Context& context, const Mask& mask, const AttentionSizes& sizes)
    : mask_(mask),
      queries_(sizes.queries),
      keys_(sizes.keys),
      intervals_(static_cast<std::size_t>(sizes.batch * sizes.queries)) {
  parallel_blocks(context, sizes.batch * queries_, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      intervals_[static_cast<std::size_t>(row)] = mask.interval(row / queries_, row % queries_, keys_);
  });
}

Visible Sights::own(std::int64_t b, std::int64_t first) const {
  Visible visible;
  visible.interval = intervals_.data() + b * queries_ + first;
  if (mask_.kind() == Mask::Kind::boolean) visible.boolean = &mask_;
  visible.entry = b;
  visible.first_query = first;
  visible.keys = keys_;
  return visible;
}

Mask::Interval Sights::reach(std::int64_t b, std::int64_t first, std::int64_t count) const {
  const Mask::Interval* interval = own(b, first).interval;
  return {interval[0].begin, interval[count - 1].end};
}

Visible Sights::cached(std::span<Mask::Interval> intervals, std::int64_t b, std::int64_t first,
                       std::int64_t keys) const {
  const std::int64_t continuing =
      std::clamp<std::int64_t>(segment_of(mask_, b, 0, keys_).end - first, 0, std::ssize(intervals));
  std::ranges::fill(intervals.first(static_cast<std::size_t>(continuing)), Mask::Interval{0, keys});
  std::ranges::fill(intervals.subspan(static_cast<std::size_t>(continuing)), Mask::Interval{keys, keys});
  Visible visible;
  visible.interval = intervals.data();
  return visible;
}

}  // namespace linnet
