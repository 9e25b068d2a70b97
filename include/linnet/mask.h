#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace linnet {

/// Which keys a query may see. Every mask is a set of intervals: query i of batch entry b sees the keys
/// [begin, end), and neither bound ever decreases with i.
class Mask {
 public:
  struct Interval {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  enum class Kind { full, causal };

  /// Every query sees every key.
  static Mask full() { return Mask(Kind::full); }

  /// Query i sees the keys 0 … i of its own call, and all that an initial state holds. Needs as many queries
  /// as keys.
  static Mask causal() { return Mask(Kind::causal); }

  /// Limits batch entry b to its first lengths[b] keys; the keys behind are padding and enter neither
  /// numerator nor denominator.
  Mask with_key_lengths(std::vector<std::int64_t> lengths) const;

  Kind kind() const { return kind_; }
  const std::vector<std::int64_t>& key_lengths() const { return key_lengths_; }

  /// The number of keys of batch entry b that are not padding.
  std::int64_t visible_keys(std::int64_t b, std::int64_t keys) const {
    return key_lengths_.empty() ? keys : key_lengths_[static_cast<std::size_t>(b)];
  }

  /// What query i of batch entry b sees of `keys` keys.
  Interval interval(std::int64_t b, std::int64_t i, std::int64_t keys) const {
    const std::int64_t limit = visible_keys(b, keys);
    return {0, kind_ == Kind::causal && i + 1 < limit ? i + 1 : limit};
  }

  /// Throws Error when the mask does not fit: key lengths not one a batch entry or outside 0 … keys, a causal
  /// mask with queries ≠ keys.
  void check(const char* operation, std::int64_t batch, std::int64_t queries, std::int64_t keys) const;

  /// "causal, key lengths".
  std::string name() const;

 private:
  explicit Mask(Kind kind) : kind_(kind) {}

  Kind kind_;
  std::vector<std::int64_t> key_lengths_;
};

}  // namespace linnet
