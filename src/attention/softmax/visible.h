#pragma once

#include <array>
#include <vector>

#include "attention/arguments.h"
#include "attention/softmax/tiles.h"

namespace linnet::softmax {

/// What every query of one call sees: two numbers a query and batch entry, computed once for all heads.
class Sights {
 public:
  Sights(Context& context, const Mask& mask, const AttentionSizes& sizes);

  /// What the queries of batch entry b from query `first` on see of the call's keys.
  Visible own(std::int64_t b, std::int64_t first) const;

  /// The keys from the first to the last that one of `count` ≥ 1 queries from query `first` on sees.
  Mask::Interval reach(std::int64_t b, std::int64_t first, std::int64_t count) const;

  using Room = std::array<Mask::Interval, kMaxQueries>;

  /// What `count` of these queries see of `keys` keys that an initial state holds: those of the first segment
  /// all of them, the others none. The result refers to `room`.
  Visible cached(Room& room, std::int64_t b, std::int64_t first, std::int64_t count, std::int64_t keys) const;

 private:
  const Mask& mask_;
  std::int64_t queries_, keys_;
  std::vector<Mask::Interval> intervals_;
};

}  // namespace linnet::softmax
