#include "kernels/elementwise.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "kernels/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void add_piece(float* y, const float* a, const float* b, std::int64_t n) {
  for_vectors(n, [&](auto lanes, std::int64_t i) {
    lanes.store(hn::Add(lanes.load(a + i), lanes.load(b + i)), y + i);
  });
}

void scale_piece(float* y, float factor, std::int64_t n) {
  for_vectors(n, [&](auto lanes, std::int64_t i) {
    lanes.store(hn::Mul(lanes.load(y + i), hn::Set(FloatTag(), factor)), y + i);
  });
}

double squares_piece(const float* x, std::int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  std::int64_t i = 0;
  constexpr std::int64_t ahead = 512;  // from memory the hardware alone fetches too late
  for (; i + 2 * step <= n; i += 2 * step) {
    __builtin_prefetch(x + i + ahead);
    const auto a = hn::PromoteTo(d, hn::LoadU(half, x + i)),
               b = hn::PromoteTo(d, hn::LoadU(half, x + i + step));
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(add_piece);
HWY_EXPORT(scale_piece);
HWY_EXPORT(squares_piece);

}  // namespace

void add(Context& context, View<float> y, View<const float> a, View<const float> b) {
  assert(y.size() == a.size() && y.size() == b.size());
  const auto piece = HWY_DYNAMIC_DISPATCH(add_piece);
  parallel_pieces(
      context, [&](std::int64_t n, float* to, const float* p, const float* q) { piece(to, p, q, n); }, y, a,
      b);
}

void set_zero(Context& context, std::span<float> y) {
  parallel_pieces(
      context,
      [](std::int64_t n, float* to) { std::memset(to, 0, static_cast<std::size_t>(n) * sizeof(float)); },
      View<float>(y.data(), {static_cast<std::int64_t>(y.size())}));
}

void scale(Context& context, std::span<float> y, float factor) {
  const auto piece = HWY_DYNAMIC_DISPATCH(scale_piece);
  parallel_pieces(
      context, [&](std::int64_t n, float* to) { piece(to, factor, n); },
      View<float>(y.data(), {static_cast<std::int64_t>(y.size())}));
}

double sum_of_squares(Context& context, std::span<const float> x) {
  const auto size = static_cast<std::int64_t>(x.size());
  std::vector<double> parts(static_cast<std::size_t>((size + piece_elements - 1) / piece_elements));
  const auto piece = HWY_DYNAMIC_DISPATCH(squares_piece);
  parallel_blocks(context, size, piece_elements, [&](std::int64_t begin, std::int64_t end) {
    parts[static_cast<std::size_t>(begin / piece_elements)] = piece(x.data() + begin, end - begin);
  });
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
