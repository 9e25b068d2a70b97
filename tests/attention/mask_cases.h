#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "linnet/mask.h"

namespace linnet::test {

using Bounds = std::vector<std::int64_t>;

/// A mask, and its meaning said a second time: whether query i of batch entry b sees key j.
struct MaskCase {
  std::string what;
  Mask mask;
  std::function<bool(std::int64_t b, std::int64_t i, std::int64_t j)> sees;

  /// Keys that a query sees on average.
  double visible_keys(std::int64_t batch, std::int64_t queries, std::int64_t keys) const {
    double count = 0;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t j = 0; j < keys; ++j) count += sees(b, i, j);
    return count / double(std::max<std::int64_t>(1, batch * queries));
  }
};

/// Numbers in 0 … bound − 1, one after another.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : random_(seed, Draw::test, 9) {}
  std::int64_t below(std::int64_t bound) {
    return std::int64_t(random_.below(std::uint64_t(std::max<std::int64_t>(1, bound)), next_++));
  }

 private:
  Random random_;
  std::uint64_t next_ = 0;
};

/// Segment bounds from 0 to n: short segments and long ones, of a single token too.
inline Bounds random_bounds(std::int64_t n, std::uint64_t seed) {
  Numbers numbers(seed);
  Bounds bounds = {0};
  while (bounds.back() < n) {
    const std::int64_t widths[] = {1, 2 + numbers.below(9), 20 + numbers.below(60), 64};
    bounds.push_back(std::min(n, bounds.back() + widths[numbers.below(4)]));
  }
  return bounds;
}

/// A key length for every batch entry: none, one key, all, or any.
inline Bounds random_lengths(std::int64_t batch, std::int64_t n, std::uint64_t seed) {
  Numbers numbers(seed);
  Bounds lengths;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t choices[] = {0, numbers.below(n + 1), n, std::min<std::int64_t>(n, 1),
                                    numbers.below(n + 1)};
    lengths.push_back(choices[numbers.below(5)]);
  }
  return lengths;
}

inline MaskCase with_key_lengths(const MaskCase& base, Bounds lengths) {
  return {base.what + fmt::format(", key lengths {}", fmt::join(lengths, " ")),
          base.mask.with_key_lengths(lengths),
          [base, lengths](std::int64_t b, std::int64_t i, std::int64_t j) {
            return j < lengths[b] && base.sees(b, i, j);
          }};
}

inline MaskCase with_segments(const MaskCase& base, std::vector<Bounds> lists) {
  std::string what = base.what;
  for (const Bounds& bounds : lists) what += fmt::format(", segments {}", fmt::join(bounds, " "));
  const Mask mask = lists.size() == 1 ? base.mask.with_segments(lists[0]) : base.mask.with_segments(lists);
  std::vector<Bounds> segment_of;
  for (const Bounds& bounds : lists) {
    segment_of.emplace_back(bounds.empty() ? 0 : bounds.back());
    for (const std::int64_t bound : bounds)
      for (std::size_t i = bound; i < segment_of.back().size(); ++i) ++segment_of.back()[i];
  }
  return {what, mask, [base, segment_of](std::int64_t b, std::int64_t i, std::int64_t j) {
            const Bounds& segment = segment_of[segment_of.size() == 1 ? 0 : b];
            return segment[i] == segment[j] && base.sees(b, i, j);
          }};
}

inline MaskCase full_case() {
  return {"full", Mask::full(), [](auto, auto, auto) { return true; }};
}

inline MaskCase causal_case() {
  return {"causal", Mask::causal(), [](auto, std::int64_t i, std::int64_t j) { return j <= i; }};
}

inline MaskCase prefix_case(Bounds lengths) {
  return {fmt::format("prefix {}", fmt::join(lengths, " ")), Mask::prefix(lengths),
          [lengths](std::int64_t b, std::int64_t i, std::int64_t j) {
            return j <= i || j < lengths[lengths.size() == 1 ? 0 : b];
          }};
}

inline MaskCase window_case(std::int64_t left, std::int64_t right) {
  return {fmt::format("window {},{}", left, right), Mask::window(left, right),
          [=](auto, std::int64_t i, std::int64_t j) { return j <= i ? i - j <= left : j - i <= right; }};
}

inline MaskCase intervals_case(const std::string& what, Bounds begin, Bounds end) {
  return {"intervals, " + what, Mask::intervals(begin, end),
          [begin, end](auto, std::int64_t i, std::int64_t j) { return begin[i] <= j && j < end[i]; }};
}

/// Every query its own sorted bounds: empty ones, where they cross, included.
inline MaskCase crossing_intervals(std::int64_t queries, std::int64_t keys, std::uint64_t seed) {
  Numbers numbers(seed);
  Bounds begin, end;
  for (std::int64_t i = 0; i < queries; ++i) begin.push_back(numbers.below(keys + 1));
  for (std::int64_t i = 0; i < queries; ++i) end.push_back(numbers.below(keys + 1));
  std::ranges::sort(begin);
  std::ranges::sort(end);
  return intervals_case("crossing", begin, end);
}

/// Constant for a while, then a jump; every third stretch sees nothing.
inline MaskCase jumping_intervals(std::int64_t queries, std::int64_t keys, std::uint64_t seed) {
  Numbers numbers(seed);
  Bounds begin(queries), end(queries);
  std::int64_t low = 0, high = std::min<std::int64_t>(keys, 3);
  for (std::int64_t i = 0, left = 0, stretch = 0; i < queries; ++i, --left) {
    if (left == 0) {
      left = 1 + numbers.below(40);
      low = std::min(keys, std::max(low, high - numbers.below(70)));
      high = std::min(keys, high + numbers.below(90));
      if (++stretch % 3 == 0) low = high;
    }
    begin[i] = low;
    end[i] = high;
  }
  return intervals_case("jumping", begin, end);
}

/// A band about the diagonal of a rectangle, its width changing.
inline MaskCase band_intervals(std::int64_t queries, std::int64_t keys, std::uint64_t seed) {
  Numbers numbers(seed);
  Bounds begin(queries), end(queries);
  std::int64_t low = 0, high = 0;
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t middle = (2 * i + 1) * keys / (2 * queries);
    low = begin[i] = std::max(low, middle - numbers.below(50));
    high = end[i] = std::min(keys, std::max(high, middle + numbers.below(9)));
    low = begin[i] = std::min(low, keys);
  }
  return intervals_case("band", begin, end);
}

/// A boolean mask of `sees`, as a matrix (of ones, or of whatever is not 0) or as a function of tiles.
template <class Sees>
MaskCase boolean_case(const std::string& what, std::int64_t batch, std::int64_t queries, std::int64_t keys,
                      bool function, const Sees& sees) {
  const auto matrix = std::make_shared<std::vector<std::uint8_t>>(batch * queries * keys);
  const View<std::uint8_t> view(matrix->data(), {batch, queries, keys});
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) view(b, i, j) = sees(b, i, j) ? 1 + (i + j) % 255 : 0;
  const auto entry = [batch](std::int64_t b) { return batch == 1 ? 0 : b; };
  const auto again = [matrix, view, entry](std::int64_t b, std::int64_t i, std::int64_t j) {
    return view(entry(b), i, j) != 0;
  };
  if (!function) return {"boolean matrix, " + what, Mask::boolean(View<const std::uint8_t>(view)), again};
  return {"boolean function, " + what,
          Mask::boolean([=](View<std::uint8_t> tile, std::int64_t b, std::int64_t i0, std::int64_t j0) {
            for (std::int64_t i = 0; i < tile.extent(0); ++i)
              for (std::int64_t j = 0; j < tile.extent(1); ++j) tile(i, j) = again(b, i0 + i, j0 + j) ? 1 : 0;
          }),
          again};
}

inline std::vector<MaskCase> boolean_cases(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                                           std::uint64_t seed) {
  const auto random = [&](double density) {
    return [=, numbers = Random(seed, Draw::test, 5)](std::int64_t b, std::int64_t i, std::int64_t j) {
      return i % 7 != 3 && numbers.uniform((b * queries + i) * keys + j) < density;
    };
  };
  const auto blocks = [](auto, std::int64_t i, std::int64_t j) { return i / 20 == j / 20; };
  const auto backwards = [=](auto, std::int64_t i, std::int64_t j) {
    return std::abs(i + j - keys + 1) <= 5;
  };
  return {boolean_case("density 0.01", batch, queries, keys, false, random(0.01)),
          boolean_case("density 0.5", batch, queries, keys, true, random(0.5)),
          boolean_case("blocks", 1, queries, keys, false, blocks),
          boolean_case("backwards", batch, queries, keys, true, backwards),
          boolean_case("nothing", 1, queries, keys, false, [](auto, auto, auto) { return false; })};
}

/// Every kind of mask alone, with key lengths, with segments and with both; without what needs as many
/// queries as keys where there are not.
inline std::vector<MaskCase> all_masks(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                                       std::uint64_t seed) {
  const bool square = queries == keys;
  std::vector<MaskCase> kinds = {full_case(), crossing_intervals(queries, keys, seed),
                                 jumping_intervals(queries, keys, seed), band_intervals(queries, keys, seed)};
  if (square) {
    kinds.push_back(causal_case());
    kinds.push_back(prefix_case({keys / 3}));
    kinds.push_back(prefix_case(random_lengths(batch, keys, seed + 1)));
    constexpr std::int64_t far = 1'000'000'000;
    for (const auto& [left, right] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0},
                                                                                        {49, 0},
                                                                                        {5, 7},
                                                                                        {0, 31},
                                                                                        {31, 0},
                                                                                        {32, 0},
                                                                                        {63, 0},
                                                                                        {64, 0},
                                                                                        {200, 3},
                                                                                        {far, 0},
                                                                                        {0, far}})
      kinds.push_back(window_case(left, right));
  }
  for (MaskCase& mask : boolean_cases(batch, queries, keys, seed)) kinds.push_back(std::move(mask));
  std::vector<MaskCase> cases;
  for (const MaskCase& kind : kinds) {
    ++seed;
    cases.push_back(kind);
    cases.push_back(with_key_lengths(kind, random_lengths(batch, keys, seed)));
    if (!square) continue;
    cases.push_back(with_segments(kind, {random_bounds(keys, seed)}));
    std::vector<Bounds> lists;
    for (std::int64_t b = 0; b < batch; ++b) lists.push_back(random_bounds(keys, seed + 100 * (b + 1)));
    cases.push_back(with_key_lengths(with_segments(kind, lists), random_lengths(batch, keys, seed + 1)));
  }
  return cases;
}

/// One or two of every kind, with what goes along: for tests that repeat them many times.
inline std::vector<MaskCase> some_masks(std::int64_t batch, std::int64_t n, std::uint64_t seed) {
  const Bounds bounds = random_bounds(n, seed);
  Bounds lengths(batch, n);
  lengths.back() = 2 * n / 3;
  const auto packed = [&](const MaskCase& mask) { return with_segments(mask, {bounds}); };
  const auto padded = [&](const MaskCase& mask) { return with_key_lengths(mask, lengths); };
  return {padded(packed(full_case())),
          padded(packed(causal_case())),
          padded(prefix_case({n / 3})),
          packed(prefix_case(Bounds(batch, n / 2))),
          packed(window_case(49, 0)),
          padded(window_case(5, 7)),
          crossing_intervals(n, n, seed),
          jumping_intervals(n, n, seed),
          padded(packed(boolean_cases(batch, n, n, seed)[1]))};
}

}  // namespace linnet::test
