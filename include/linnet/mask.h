#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "linnet/tensor.h"

namespace linnet {

/// Which keys a query may see. Every mask but `boolean` is a set of intervals: query i of batch entry b sees
/// the keys [begin, end), and neither bound ever decreases with i; such a mask costs the linear family linear
/// time, forward and backward. Masks are values, cheap to copy.
class Mask {
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

  /// The first lengths[b] keys of batch entry b are seen by every query, the others causally: query i sees
  /// the keys up to max(i, lengths[b] − 1). One length serves all batch entries. Needs as many queries as
  /// keys.
  static Mask prefix(std::vector<std::int64_t> lengths);

  /// Query i sees the keys i − left … i + right. Needs as many queries as keys.
  static Mask window(std::int64_t left, std::int64_t right);

  /// Query i of every batch entry sees the keys begin[i] … end[i] − 1, none where end[i] ≤ begin[i]. Neither
  /// array may decrease; a mask for which one does is a boolean one.
  static Mask intervals(std::vector<std::int64_t> begin, std::vector<std::int64_t> end);

  /// Query i sees key j where visible(b, i, j) ≠ 0: [B, L, S], or [1, L, S] for all batch entries; the
  /// caller's memory. Exact, but quadratic: the time is N² in every family, less the tiles in which nothing
  /// is seen; memory beyond the mask itself is O(N).
  static Mask boolean(View<const std::uint8_t> visible);

  /// The same from a function of tiles, called from many threads: a mask that nobody has to store.
  static Mask boolean(BooleanTile tile);

  /// Limits batch entry b to its first lengths[b] keys; the keys behind are padding and enter neither
  /// numerator nor denominator.
  Mask with_key_lengths(std::vector<std::int64_t> lengths) const;

  /// Packed sequences: nothing is seen across a bound. Bounds go from 0 to the length and increase; the same
  /// for all batch entries, or a list for each. Needs as many queries as keys.
  Mask with_segments(std::vector<std::int64_t> bounds) const;
  Mask with_segments(std::vector<std::vector<std::int64_t>> bounds) const;

  /// What a full, causal or window mask shows within a window: a window mask with the same key lengths and
  /// segments. Throws Error for any other.
  Mask within(std::int64_t left, std::int64_t right) const;

  Kind kind() const { return kind_; }
  bool has_segments() const { return segments_ != nullptr; }
  const std::vector<std::int64_t>& key_lengths() const { return key_lengths_; }

  /// Whether queries and keys are the same tokens, so that there must be as many of both.
  bool together() const {
    return kind_ == Kind::causal || kind_ == Kind::prefix || kind_ == Kind::window || has_segments();
  }

  /// Whether a state can come before the keys and one can be left behind them: causal and prefix, with key
  /// lengths and segments (the first segment continues the state, the last one leaves it).
  bool takes_state() const { return kind_ == Kind::causal || kind_ == Kind::prefix; }

  /// The number of keys of batch entry b that are not padding.
  std::int64_t visible_keys(std::int64_t b, std::int64_t keys) const {
    return key_lengths_.empty() ? keys : key_lengths_[static_cast<std::size_t>(b)];
  }

  /// What query i of batch entry b sees of `keys` keys; under a boolean mask what it sees at most.
  Interval interval(std::int64_t b, std::int64_t i, std::int64_t keys) const;

  /// The queries, of `queries`, that see key j: an interval too, whose bounds never decrease with j. O(log
  /// N).
  Interval seen_by(std::int64_t b, std::int64_t j, std::int64_t queries, std::int64_t keys) const;

  /// The segment [begin, end) that holds query or key i; all of them without segments.
  Interval segment(std::int64_t b, std::int64_t i, std::int64_t keys) const;

  /// Fills `tile` for the queries and keys from (first_query, first_key) on, as `BooleanTile` says: for any
  /// mask.
  void fill(View<std::uint8_t> tile, std::int64_t b, std::int64_t first_query, std::int64_t first_key,
            std::int64_t keys) const;

  /// Throws Error when the mask does not fit: lists not one a batch entry, lengths, intervals or bounds out
  /// of range or decreasing, a boolean mask of another shape, and a mask that needs as many queries as keys
  /// without them.
  void check(const char* operation, std::int64_t batch, std::int64_t queries, std::int64_t keys) const;

  /// "causal, segments, key lengths".
  std::string name() const;

 private:
  using Bounds = std::vector<std::int64_t>;

  explicit Mask(Kind kind) : kind_(kind) {}
  const Bounds& bounds(std::int64_t b) const {
    return (*segments_)[segments_->size() == 1 ? 0 : static_cast<std::size_t>(b)];
  }

  Kind kind_;
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
