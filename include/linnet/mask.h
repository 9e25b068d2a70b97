#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "linnet/export.h"
#include "linnet/tensor.h"

namespace linnet {

/// Which keys a query may see. Every mask except `boolean` is a set of intervals: query i of batch entry b
/// sees the keys [begin, end), and neither bound ever decreases with i. The linear family takes linear time
/// with such a mask, forward and backward. Masks are values, cheap to copy. What does not fit is found by the
/// attention that is given the mask (`check`).
class LINNET_API Mask {
 public:
  struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;  ///< at least begin

    bool contains(std::int64_t i) const { return begin <= i && i < end; }
    bool operator==(const Interval&) const = default;
  };

  enum class Kind { full, causal, prefix, window, intervals, boolean };

  /// Writes 1 to tile(i, j) where query first_query + i of batch entry b sees key first_key + j, and 0
  /// elsewhere.
  using BooleanTile = std::function<void(View<std::uint8_t> tile, std::int64_t b, std::int64_t first_query,
                                         std::int64_t first_key)>;

  /// Every query sees every key.
  static Mask full() { return Mask(Kind::full); }

  /// Query i sees the keys 0 … i of its own call, and all that an initial state holds. Needs as many queries
  /// as keys.
  static Mask causal() { return Mask(Kind::causal); }

  /// Every query sees the first lengths[b] keys of batch entry b, and the others causally: query i sees the
  /// keys up to max(i, lengths[b] − 1). A single length is used for all batch entries. Needs as many queries
  /// as keys.
  static Mask prefix(std::vector<std::int64_t> lengths);

  /// Query i sees the keys i − left … i + right. Needs as many queries as keys.
  static Mask window(std::int64_t left, std::int64_t right);

  /// Query i of every batch entry sees the keys begin[i] … end[i] − 1, none where end[i] ≤ begin[i]. Neither
  /// array may decrease; otherwise use a boolean mask.
  static Mask intervals(std::vector<std::int64_t> begin, std::vector<std::int64_t> end);

  /// Query i sees key j where visible(b, i, j) ≠ 0: [B, L, S], or [1, L, S] for all batch entries, in
  /// the caller's memory. Exact, but the time is quadratic in every family; tiles in which no pair is visible
  /// are skipped. Memory beyond the mask itself is O(N).
  static Mask boolean(View<const std::uint8_t> visible);

  /// The same from a function that computes tiles and is called from many threads. The mask is never stored.
  static Mask boolean(BooleanTile tile);

  /// Limits batch entry b to its first lengths[b] keys. The keys after them are padding and enter neither
  /// numerator nor denominator.
  Mask with_key_lengths(std::vector<std::int64_t> lengths) const;

  /// Packed sequences: no query sees a key across a bound. Bounds increase from 0 to the length. There is one
  /// list for all batch entries, or one for each. Needs as many queries as keys.
  Mask with_segments(std::vector<std::int64_t> bounds) const;
  Mask with_segments(std::vector<std::vector<std::int64_t>> bounds) const;

  /// The intersection of a full, causal or window mask with a window: a window mask with the same key lengths
  /// and segments. Throws Error for any other mask.
  Mask within(std::int64_t left, std::int64_t right) const;

  Kind kind() const { return kind_; }
  bool has_segments() const { return segments_ != nullptr; }
  const std::vector<std::int64_t>& key_lengths() const { return key_lengths_; }

  /// The bounds of the segments of batch entry b; only for a mask that has segments.
  const std::vector<std::int64_t>& segment_bounds(std::int64_t b) const {
    return (*segments_)[segments_->size() == 1 ? 0 : static_cast<std::size_t>(b)];
  }

  /// Whether the mask supports an initial and a final state: causal and prefix, with key lengths and
  /// segments. The first segment continues the initial state, and the last one gives the final state.
  bool takes_state() const { return kind_ == Kind::causal || kind_ == Kind::prefix; }

  /// The keys, of `keys`, that query i of batch entry b sees; with a boolean mask those that it may see.
  Interval interval(std::int64_t b, std::int64_t i, std::int64_t keys) const;

  /// Fills `tile` for the queries and keys from (first_query, first_key), as `BooleanTile` does, for any
  /// mask.
  void fill(View<std::uint8_t> tile, std::int64_t b, std::int64_t first_query, std::int64_t first_key,
            std::int64_t keys) const;

  /// Throws Error when the mask does not fit: lists whose number is not that of the batch entries; lengths,
  /// intervals or bounds that are out of range or decrease; a boolean mask of another shape; unequal numbers
  /// of queries and keys for a mask that needs equal ones.
  void check(const char* operation, std::int64_t batch, std::int64_t queries, std::int64_t keys) const;

  /// "causal, segments, key lengths".
  std::string name() const;

 private:
  using Bounds = std::vector<std::int64_t>;

  explicit Mask(Kind kind) : kind_(kind) {}

  Kind kind_;
  bool has_key_lengths_ = false;
  std::vector<std::int64_t> key_lengths_;
  std::vector<std::int64_t> prefix_;
  std::int64_t left_ = 0, right_ = 0;
  std::shared_ptr<const Bounds> begin_, end_;
  std::shared_ptr<const std::vector<Bounds>> segments_;
  bool matrix_ = false;  // whether a boolean mask is `visible_`
  View<const std::uint8_t> visible_;
  std::shared_ptr<const BooleanTile> tile_;
};

}  // namespace linnet
