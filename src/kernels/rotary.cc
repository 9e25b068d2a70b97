#include "kernels/rotary.h"

#include <cassert>
#include <cmath>

#include "kernels/pieces.h"
#include "kernels/position_frequencies.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The same as rotate_heads where `half` is a multiple of the lanes of d.
template <class D>
void rotate_whole(D d, float* x, std::int64_t heads, std::int64_t stride, const float* cosine,
                  const float* sine, std::int64_t half) {
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t head = 0; head < heads; ++head, x += stride)
    for (std::int64_t j = 0; j < half; j += step) {
      const auto c = hn::LoadU(d, cosine + j), s = hn::LoadU(d, sine + j);
      const auto a = hn::LoadU(d, x + j), b = hn::LoadU(d, x + half + j);
      hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, x + j);
      hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, x + half + j);
    }
}

// One token: `heads` rows of 2 · half numbers, each `stride` behind the one before.
void rotate_heads(float* x, std::int64_t heads, std::int64_t stride, const float* cosine, const float* sine,
                  std::int64_t half) {
  // Halves of a head are often shorter than a vector.
  const FloatTag whole;
  const hn::CappedTag<float, 8> eight;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 1> one;
  const auto fits = [&](auto d) { return half % static_cast<std::int64_t>(hn::Lanes(d)) == 0; };
  if (fits(whole)) return rotate_whole(whole, x, heads, stride, cosine, sine, half);
  if (fits(eight)) return rotate_whole(eight, x, heads, stride, cosine, sine, half);
  if (fits(four)) return rotate_whole(four, x, heads, stride, cosine, sine, half);
  rotate_whole(one, x, heads, stride, cosine, sine, half);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(rotate_heads);

// Cosines and sines of all pairs at one position.
struct Angles {
  float cosine[most_rotary_dim / 2], sine[most_rotary_dim / 2];

  void find(std::int64_t position, std::span<const std::uint64_t> frequencies, Turn turn) {
    constexpr double radians = 6.283185307179586 * 0x1p-64;
    for (std::size_t j = 0; j < frequencies.size(); ++j) {
      const std::uint64_t phase = static_cast<std::uint64_t>(position) * frequencies[j];
      // The nearest quarter turn, and what is left: at most an eighth of a turn to either side.
      const std::uint64_t quarter = (phase + (std::uint64_t{1} << 61)) >> 62;
      const double x = radians * static_cast<double>(static_cast<std::int64_t>(phase - (quarter << 62)));
      const double x2 = x * x;
      // Taylor's polynomials, whose errors up to π/4 are below 2e-9 and 2e-10.
      const double s = x * (1 + x2 * (-1.0 / 6 + x2 * (1.0 / 120 + x2 * (-1.0 / 5040 + x2 / 362880))));
      const double c =
          1 + x2 * (-0.5 + x2 * (1.0 / 24 + x2 * (-1.0 / 720 + x2 * (1.0 / 40320 - x2 / 3628800))));
      const double swapped_c = quarter % 2 == 0 ? c : s, swapped_s = quarter % 2 == 0 ? s : c;
      const bool negative_c = quarter == 1 || quarter == 2, negative_s = quarter >= 2;
      cosine[j] = static_cast<float>(negative_c ? -swapped_c : swapped_c);
      sine[j] = static_cast<float>(negative_s != (turn == Turn::back) ? -swapped_s : swapped_s);
    }
  }
};

}  // namespace

std::vector<std::uint64_t> rotary_frequencies(std::int64_t d) {
  assert(d % 2 == 0 && d <= most_rotary_dim);
  std::vector<std::uint64_t> result;
  const Twofold ratio = frequency_ratio(d);
  Twofold frequency = turns_per_radian;
  for (std::int64_t j = 0; j < d / 2; ++j, frequency = frequency * ratio) {
    const double high = frequency.high * 0x1p64, whole = std::trunc(high);
    const double rest = (high - whole) + frequency.low * 0x1p64;
    result.push_back(static_cast<std::uint64_t>(static_cast<std::int64_t>(whole) + std::llround(rest)));
  }
  return result;
}

void rotate(Context& context, View<float> x, std::int64_t first, std::span<const std::uint64_t> frequencies,
            Turn turn) {
  const std::int64_t batch = x.extent(0), heads = x.extent(2), d = x.extent(3);
  assert(static_cast<std::int64_t>(frequencies.size()) == d / 2);
  const auto heads_of_token = HWY_DYNAMIC_DISPATCH(rotate_heads);
  parallel_blocks(context, x.extent(1), rows_of_piece(batch * heads * d),
                  [&](std::int64_t begin, std::int64_t end) {
                    Angles angles;
                    for (std::int64_t i = begin; i < end; ++i) {
                      angles.find(first + i, frequencies, turn);
                      for (std::int64_t b = 0; b < batch; ++b)
                        heads_of_token(x.at(b, i), heads, x.stride(2), angles.cosine, angles.sine, d / 2);
                    }
                  });
}

void rotate_rows(Context& context, View<float> x, std::span<const std::int64_t> positions,
                 std::span<const std::uint64_t> frequencies, Turn turn) {
  const std::int64_t heads = x.extent(1), d = x.extent(2);
  assert(x.extent(0) == static_cast<std::int64_t>(positions.size()) &&
         static_cast<std::int64_t>(frequencies.size()) == d / 2);
  const auto heads_of_token = HWY_DYNAMIC_DISPATCH(rotate_heads);
  parallel_blocks(context, x.extent(0), rows_of_piece(heads * d), [&](std::int64_t begin, std::int64_t end) {
    Angles angles;
    for (std::int64_t i = begin; i < end; ++i) {
      angles.find(positions[static_cast<std::size_t>(i)], frequencies, turn);
      heads_of_token(x.at(i), heads, x.stride(1), angles.cosine, angles.sine, d / 2);
    }
  });
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
