#include "attention/softmax/visible.h"

#include <algorithm>

#include "base/parallel.h"

namespace linnet::softmax {

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

Visible Sights::cached(Room& room, std::int64_t b, std::int64_t first, std::int64_t count,
                       std::int64_t keys) const {
  const std::int64_t continuing = std::clamp<std::int64_t>(mask_.segment(b, 0, keys_).end - first, 0, count);
  std::fill_n(room.begin(), continuing, Mask::Interval{0, keys});
  std::fill_n(room.begin() + continuing, count - continuing, Mask::Interval{keys, keys});
  Visible visible;
  visible.interval = room.data();
  return visible;
}

Seen fill_seen(std::uint8_t* tile, const Visible& visible, std::int64_t query, std::int64_t queries,
               std::int64_t key, std::int64_t keys) {
  std::uint8_t rows[kPanel * kKeyTile];
  visible.boolean->fill({rows, {queries, keys}}, visible.entry, visible.first_query + query, key,
                        visible.keys);
  const std::int64_t pairs = std::count(rows, rows + queries * keys, std::uint8_t{1});
  if (pairs == 0) return Seen::none;
  if (pairs == queries * keys) return Seen::all;
  for (std::int64_t j = 0; j < keys; ++j) {
    std::uint8_t* seen = tile + j * kPanel;
    for (std::int64_t i = 0; i < queries; ++i) seen[i] = rows[i * keys + j];
    std::fill(seen + queries, seen + kPanel, std::uint8_t{0});
  }
  return Seen::some;
}

}  // namespace linnet::softmax
