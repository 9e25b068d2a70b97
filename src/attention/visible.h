#pragma once

#include <span>
#include <vector>

#include "attention/arguments.h"

namespace linnet {

/// What the queries of a block see of a range of keys: query i of the block the keys interval[i], and under a
/// boolean mask those of them that it names.
struct Visible {
  const Mask::Interval* interval = nullptr;  ///< neither bound decreases
  const Mask* boolean = nullptr;             ///< null for every other mask
  std::int64_t entry = 0;                    ///< of the batch, as are the next two what Mask::fill is told
  std::int64_t first_query = 0;              ///< of the block
  std::int64_t keys = 0;                     ///< of the call
};

/// What every query of one call sees: two numbers a query and batch entry, computed once for all heads.
class Sights {
 public:
  Sights(Context& context, const Mask& mask, const AttentionSizes& sizes);

  /// What the queries of batch entry b from query `first` on see of the call's keys.
  Visible own(std::int64_t b, std::int64_t first) const;

  /// The keys from the first to the last that one of `count` ≥ 1 queries from query `first` on sees.
  Mask::Interval reach(std::int64_t b, std::int64_t first, std::int64_t count) const;

  /// What the queries of batch entry b from query `first` on, one for each of `intervals`, see of `keys` keys
  /// that an initial state holds: those of the first segment all of them, the others none. Fills `intervals`,
  /// which the result refers to.
  Visible cached(std::span<Mask::Interval> intervals, std::int64_t b, std::int64_t first,
                 std::int64_t keys) const;

 private:
  const Mask& mask_;
  std::int64_t queries_, keys_;
  std::vector<Mask::Interval> intervals_;
};

}  // namespace linnet
