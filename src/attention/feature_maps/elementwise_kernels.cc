#include "attention/feature_maps/elementwise_kernels.h"

#include <cassert>
#include <cstdint>

#include "linnet/feature_map.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/feature_maps/elementwise_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"
#include "kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;

/// exp(x) for −87 ≤ x ≤ 87, relative error below 4e-7; anything for others and NaN. Shorter than fast_exp,
/// because this is most of what the elu map costs, and the map a good part of linear attention. The
/// polynomial is a minimax fit of exp on |r| ≤ ln 2 / 2 whose first two coefficients are 1.
HWY_INLINE V exp_within87(V x) {
  const hn::RebindToSigned<D> di;
  // 1.5·2^23: adding it rounds, and leaves the integer in the low bits.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504089f), magic);
  const V n = hn::Sub(shifted, magic);
#if HWY_NATIVE_FMA
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.693147180560f), x);  // ln 2 in f32 is 2e-9 off
#else
  // Without a fused product n ln 2 would be rounded: its first part has few enough bits to be exact.
  const V r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
#endif
  V p = hn::MulAdd(hn::Set(d, 8.31248e-3f), r, hn::Set(d, 4.189055e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16667116f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.49999229f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// Each map as value(x) and slope(x, y), y = value(x). A NaN stays one: no comparison sends it to a constant.
template <bool kAlphaIsOne>
struct Elu {
  V alpha, rest;  // φ(x) = α exp(x) + (1 − α) for x ≤ 0, which does not cancel for α = 1
  explicit Elu(float a) : alpha(hn::Set(d, a)), rest(hn::Set(d, 1.0f - a)) {}
  V value(V x) const {
    const V exp = exp_within87(hn::Max(x, hn::Set(d, -86.0f)));
    const V low = kAlphaIsOne ? exp : hn::MulAdd(alpha, exp, rest);
    return hn::IfThenElse(hn::Le(x, hn::Zero(d)), low, hn::Add(x, hn::Set(d, 1.0f)));
  }
  V slope(V x, V y) const {
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f), hn::Sub(y, rest));
  }
};

struct Relu {
  explicit Relu(float) {}
  V value(V x) const { return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x); }
  V slope(V x, V) const { return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f)); }
};

struct SquaredRelu {
  explicit SquaredRelu(float) {}
  V value(V x) const {
    const V positive = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
    return hn::Mul(positive, positive);
  }
  V slope(V x, V) const { return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), hn::Add(x, x)); }
};

struct Exp {
  explicit Exp(float) {}
  V value(V x) const {
    const V limit = hn::Set(d, kMostExponent);
    return kernels::HWY_NAMESPACE::fast_exp(d, hn::IfThenElse(hn::Gt(x, limit), limit, x));
  }
  V slope(V x, V y) const { return hn::IfThenZeroElse(hn::Gt(x, hn::Set(d, kMostExponent)), y); }
};

struct Identity {
  explicit Identity(float) {}
  V value(V x) const { return x; }
  V slope(V, V) const { return hn::Set(d, 1.0f); }
};

template <class Function>
void each_vector(float* y, const float* x, std::int64_t count, const Function& function) {
  kernels::HWY_NAMESPACE::for_vectors(count, [&](const auto& lanes, std::int64_t i) HWY_ATTR {
    lanes.store(function(lanes.load(x + i)), y + i);
  });
}

template <class Map>
void forward(const Map& map, View<float> y, View<const float> x) {
  for (std::int64_t r = 0; r < x.extent(0); ++r)
    each_vector(y.at(r), x.at(r), x.extent(1), [&](V v) HWY_ATTR { return map.value(v); });
}

template <class Map>
void backward(const Map& map, View<float> dx, View<const float> dy, View<const float> x,
              View<const float> y) {
  for (std::int64_t r = 0; r < x.extent(0); ++r) {
    float* to = dx.at(r);
    const float *from = dy.at(r), *at = x.at(r), *value = y.at(r);
    kernels::HWY_NAMESPACE::for_vectors(x.extent(1), [&](const auto& lanes, std::int64_t i) HWY_ATTR {
      const V slope = map.slope(lanes.load(at + i), lanes.load(value + i));
      lanes.store(hn::Mul(lanes.load(from + i), slope), to + i);
    });
  }
}

void map_tile(Elementwise map, float alpha, View<float> y, View<const float> x) {
  switch (map) {
    case Elementwise::elu:
      return alpha == 1 ? forward(Elu<true>(alpha), y, x) : forward(Elu<false>(alpha), y, x);
    case Elementwise::relu:
      return forward(Relu(alpha), y, x);
    case Elementwise::squared_relu:
      return forward(SquaredRelu(alpha), y, x);
    case Elementwise::exp:
      return forward(Exp(alpha), y, x);
    case Elementwise::identity:
      return forward(Identity(alpha), y, x);
  }
}

void map_tile_backward(Elementwise map, float alpha, View<float> dx, View<const float> dy,
                       View<const float> x, View<const float> y) {
  switch (map) {
    case Elementwise::elu:
      return backward(Elu<false>(alpha), dx, dy, x, y);
    case Elementwise::relu:
      return backward(Relu(alpha), dx, dy, x, y);
    case Elementwise::squared_relu:
      return backward(SquaredRelu(alpha), dx, dy, x, y);
    case Elementwise::exp:
      return backward(Exp(alpha), dx, dy, x, y);
    case Elementwise::identity:
      return backward(Identity(alpha), dx, dy, x, y);
  }
}

void tile_exp(float* y, const float* x, std::int64_t count) {
  const V low = hn::Set(d, -87.0f), high = hn::Set(d, 87.0f);
  each_vector(y, x, count, [&](V v) HWY_ATTR {
    const V within = hn::Min(hn::Max(v, low), high);
    return hn::IfThenElse(hn::IsNaN(v), v, exp_within87(within));
  });
}

void tile_tanh(float* y, const float* x, std::int64_t count) {
  each_vector(y, x, count, [](V v) HWY_ATTR { return kernels::HWY_NAMESPACE::fast_tanh(d, v); });
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(map_tile);
HWY_EXPORT(map_tile_backward);
HWY_EXPORT(tile_exp);
HWY_EXPORT(tile_tanh);

void map_tile(Elementwise map, float alpha, View<float> y, View<const float> x) {
  assert(x.rank() == 2 && y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1));
  HWY_DYNAMIC_DISPATCH(map_tile)(map, alpha, y, x);
}

void map_tile_backward(Elementwise map, float alpha, View<float> dx, View<const float> dy,
                       View<const float> x, View<const float> y) {
  assert(x.rank() == 2 && dx.extent(0) == x.extent(0) && dx.extent(1) == x.extent(1));
  HWY_DYNAMIC_DISPATCH(map_tile_backward)(map, alpha, dx, dy, x, y);
}

void tile_exp(float* y, const float* x, std::int64_t count) { HWY_DYNAMIC_DISPATCH(tile_exp)(y, x, count); }

void tile_tanh(float* y, const float* x, std::int64_t count) { HWY_DYNAMIC_DISPATCH(tile_tanh)(y, x, count); }

}  // namespace linnet
#endif  // HWY_ONCE
