#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "linnet/mask.h"

namespace linnet {

/// Rows of a tile of an edge; a row of a tile's pairs is a word of bits.
inline constexpr std::int64_t kTileRows = 32;

/// Which side's results a sweep computes, from what the rows of the other side hold.
enum class SweepSide { queries, keys };

/// The pairs of a tile on an edge of a mask that see each other.
struct EdgeTile {
  Mask::Interval others;                      ///< rows of the other side
  std::array<std::uint32_t, kTileRows> seen;  ///< bit j of word i: the tile's query i sees its key j
  bool triangle = false;                      ///< query i sees exactly the keys up to i, of those there are
};

/// A chunk of rows: what they take from a state and what pair by pair.
struct SweepStep {
  Mask::Interval rows;
  /// Ordinals of the other side's chunks that every one of the rows sees in whole: they come from a state.
  std::int64_t first = 0, last = 0;
  /// Rows of the other side that some of the rows see: they come pair by pair.
  std::array<Mask::Interval, 2> edges;
  /// Whether an initial state comes before the other side's rows; in a sweep for keys the gradient of the
  /// final state, which comes behind the queries.
  bool after_initial = false;

  bool has_core(bool initial) const { return first < last || (initial && after_initial); }
};

/// How one sweep over a batch entry's rows meets its mask in linear time. Rows are cut into chunks; what all
/// rows of a chunk see, in whole chunks of the other side, is summed up in a state, and the edges that only
/// some of them see are computed pair by pair. Since the bounds of a mask never decrease, chunks enter the
/// state at its end and leave it at its beginning, each once: by the order of their ordinals, which count
/// from the end of the sequence in a sweep for keys. A piece is a run of chunks that leave together.
class SweepPlan {
 public:
  /// `chunk` rows at most in each chunk; at most kTileRows unless the mask is full or causal without
  /// segments. `states`, for a mask that takes them, says that gradients of states take part: a sweep for
  /// keys begins with that of the final one and ends with that of the initial one. Both sweeps then cut the
  /// queries behind the last visible key, where the final state is left.
  SweepPlan(const Mask& mask, SweepSide side, std::int64_t b, std::int64_t queries, std::int64_t keys,
            std::int64_t chunk, bool states = false);

  const std::vector<SweepStep>& steps() const { return steps_; }

  /// What a state left behind the last key holds: the last segment. In a sweep for keys the queries that see
  /// the initial state: the first segment. For masks that take states.
  const SweepStep& final_step() const { return final_; }

  /// The other side's rows of chunk `ordinal`, and the number of chunks.
  Mask::Interval chunk(std::int64_t ordinal) const;
  std::int64_t chunks() const { return static_cast<std::int64_t>(cuts_.size()) - 1; }

  /// The ordinals at which pieces begin, increasing.
  const std::vector<std::int64_t>& pieces() const { return pieces_; }
  /// The most pieces that a state holds at once, at least 1.
  std::int64_t most_pieces() const { return most_pieces_; }

  /// Replaces `tiles` by those of the step's edges in which anything is seen.
  void edge_tiles(const SweepStep& step, std::vector<EdgeTile>& tiles) const;

 private:
  Mask::Interval seen(std::int64_t row) const;
  std::int64_t first_behind(std::int64_t row) const;
  std::int64_t last_before(std::int64_t row) const;
  std::int64_t end_of_step(std::int64_t first) const;
  void cut_others(const std::vector<std::int64_t>& starts);
  void add_step(Mask::Interval rows);
  void find_pieces();
  void add_tile(const SweepStep& step, Mask::Interval others, std::vector<EdgeTile>& tiles) const;

  const Mask& mask_;
  SweepSide side_;
  std::int64_t batch_, queries_, keys_, chunk_;
  bool states_;
  std::int64_t rows_;               // of this side, but for padding
  std::int64_t others_;             // rows of the other side that can be seen at all
  std::vector<std::int64_t> cuts_;  // of the other side, from 0 to others_
  std::vector<SweepStep> steps_;
  std::vector<std::int64_t> pieces_;
  std::int64_t most_pieces_ = 1;
  SweepStep final_;
};

}  // namespace linnet
