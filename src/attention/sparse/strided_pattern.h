#pragma once

#include <algorithm>
#include <cstdint>

namespace linnet::sparse {

/// What a position of a stream sees in the patterns of Child et al. 2019, section 4.3.
struct StridedPattern {
  std::int64_t stride = 0;   ///< s
  std::int64_t summary = 0;  ///< c, or 0 for the strided pattern

  bool fixed() const { return summary != 0; }

  /// The first position of the near keys, which end at the position itself: the last s ones or its block.
  std::int64_t near_begin(std::int64_t position) const {
    return fixed() ? position / stride * stride : std::max<std::int64_t>(0, position - stride + 1);
  }

  /// The number of far keys: the summaries of the blocks behind, or every s-th position before the near ones,
  /// of those with the same remainder the first ones.
  std::int64_t far_keys(std::int64_t position) const { return position / stride * (fixed() ? summary : 1); }

  /// The position of far key f of the fixed pattern: of the last c of a block.
  std::int64_t summary_position(std::int64_t f) const {
    return f / summary * stride + stride - summary + f % summary;
  }

  /// How many of the fixed pattern's far keys lie before a position.
  std::int64_t summaries_before(std::int64_t position) const {
    return position / stride * summary + std::max<std::int64_t>(0, position % stride - (stride - summary));
  }

  /// How many positions with that remainder lie before `position`.
  std::int64_t before(std::int64_t position, std::int64_t remainder) const {
    return position > remainder ? (position - remainder + stride - 1) / stride : 0;
  }

  /// Tokens that a state at that position holds (`StridedState`), the most that it holds up to there, and the
  /// position of its token t.
  std::int64_t held_at(std::int64_t position) const {
    return fixed() ? position / stride * summary + position % stride : position;
  }
  std::int64_t held_at_most(std::int64_t position) const {
    const std::int64_t summaries = position / stride * summary;
    return fixed() && position - summaries > stride ? summaries + stride : position;
  }
  std::int64_t held_position(std::int64_t t, std::int64_t position) const {
    if (!fixed()) return t;
    const std::int64_t summaries = position / stride * summary;
    return t < summaries ? summary_position(t) : position / stride * stride + t - summaries;
  }

  bool operator==(const StridedPattern&) const = default;
};

}  // namespace linnet::sparse
