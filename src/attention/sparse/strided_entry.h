#pragma once

#include <algorithm>
#include <vector>

#include "attention/sparse/strided_pattern.h"
#include "attention/sparse/strided_state.h"
#include "linnet/attention.h"

namespace linnet::sparse {

/// One batch entry of a call in f32, behind what the initial state holds of it.
struct StridedEntry {
  StridedPattern pattern;
  std::int64_t position = 0;             ///< of the first query; positions count from the stream's beginning
  std::int64_t first_key = 0;            ///< the position of key row 0
  std::int64_t held = 0;                 ///< key rows before those of the call, which the state holds
  std::int64_t limit = 0;                ///< keys from this position on are padding
  View<const float> query, key, value;   ///< [1, rows, H, D]: the caller's memory where no row is held
  View<const float> far_key, far_value;  ///< the fixed pattern's summaries, of all blocks but the last one

  std::int64_t queries() const { return query.extent(1); }
  std::int64_t keys() const { return key.extent(1); }

  /// The key rows that query i sees near itself.
  Mask::Interval near(std::int64_t i) const;

  /// The far keys that it sees: summaries, or keys with the query's remainder of the stride, of which key f
  /// is row f · stride + remainder.
  Mask::Interval far(std::int64_t i) const;

  /// The first query that may see far keys: without a whole stride behind it there are none.
  std::int64_t first_far_query() const { return std::max(position, pattern.stride) - position; }

  Tensor joined_key, joined_value, summary_key, summary_value;  ///< memory of what is not the caller's
};

/// All entries of a call whose inputs are query, key and value in f32.
std::vector<StridedEntry> strided_entries(Context& context, const StridedPattern& pattern,
                                          View<const float> query, View<const float> key,
                                          View<const float> value, const Mask& mask,
                                          const StridedState* initial);

}  // namespace linnet::sparse
