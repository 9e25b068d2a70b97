// The activations of dense.h as functions of a vector; of swiglu its elementwise part, silu(x) = x σ(x).
// Included like simd_math-inl.h.

#if defined(LINNET_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_ACTIVATION_INL_H_
#undef LINNET_KERNELS_ACTIVATION_INL_H_
#else
#define LINNET_KERNELS_ACTIVATION_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/dense.h"
#include "kernels/lanes-inl.h"
#include "kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// σ(x) and σ(x) (1 − σ(x)), the latter without the difference that cancels.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void fast_sigmoid_slope(D d, V x, V& sigmoid, V& slope) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  const V e = fast_exp(d, hn::Neg(hn::Abs(x)));
  const V larger = hn::Div(one, hn::Add(one, e));
  const V smaller = hn::Mul(e, larger);
  sigmoid = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), smaller, larger);
  slope = hn::Mul(larger, smaller);
}

/// √(2/π) and 0.044715 of the tanh form of GELU (Hendrycks and Gimpel 2016).
inline constexpr float gelu_slope = 0.7978845608f;
inline constexpr float gelu_cubic = 0.044715f;

template <Activation activation, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V activate(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (activation == Activation::relu) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);  // NaN stays
  } else if constexpr (activation == Activation::gelu) {
    V density, cdf;
    fast_normal(d, x, density, cdf);
    return hn::Mul(x, cdf);
  } else if constexpr (activation == Activation::gelu_tanh) {
    // ½ (1 + tanh u) = 1 / (1 + exp(−2u)).
    const V inside = hn::MulAdd(hn::Mul(hn::Set(d, gelu_cubic), x), hn::Mul(x, x), x);
    return hn::Mul(x, fast_sigmoid(d, hn::Mul(inside, hn::Set(d, 2 * gelu_slope))));
  } else if constexpr (activation == Activation::swiglu) {
    return hn::Mul(x, fast_sigmoid(d, x));
  } else {
    return x;
  }
}

/// f'(x).
template <Activation activation, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V activation_slope(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  if constexpr (activation == Activation::relu) {
    return hn::IfThenElse(hn::Le(x, hn::Zero(d)), hn::Zero(d), hn::IfThenElse(hn::Eq(x, x), one, x));
  } else if constexpr (activation == Activation::gelu) {
    V density, cdf;
    fast_normal(d, x, density, cdf);
    return hn::MulAdd(x, density, cdf);
  } else if constexpr (activation == Activation::gelu_tanh) {
    // With z = 2u and s = σ(z): f = x s, f' = s + x s (1 − s) z'; s (1 − s) without the difference that
    // cancels.
    const V x2 = hn::Mul(x, x);
    const V inside = hn::MulAdd(hn::Mul(hn::Set(d, gelu_cubic), x), x2, x);
    const V e = fast_exp(d, hn::Mul(hn::Abs(inside), hn::Set(d, -2 * gelu_slope)));
    const V larger = hn::Div(one, hn::Add(one, e));
    const V smaller = hn::Mul(e, larger);
    const V s = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), smaller, larger);
    const V slope = hn::MulAdd(hn::Set(d, 6 * gelu_slope * gelu_cubic), x2, hn::Set(d, 2 * gelu_slope));
    return hn::MulAdd(hn::Mul(x, hn::Mul(larger, smaller)), slope, s);
  } else if constexpr (activation == Activation::swiglu) {
    V s, slope;
    fast_sigmoid_slope(d, x, s, slope);
    return hn::MulAdd(x, slope, s);
  } else {
    return one;
  }
}

/// f(x), and f'(x) for little more.
template <Activation activation, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V activate(D d, V x, V& slope) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (activation == Activation::gelu) {
    V density, cdf;
    fast_normal(d, x, density, cdf);
    slope = hn::MulAdd(x, density, cdf);
    return hn::Mul(x, cdf);
  }
  slope = activation_slope<activation>(d, x);
  return activate<activation>(d, x);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
