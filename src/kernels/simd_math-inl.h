// Elementary functions of f32 vectors, one source for every instruction set. Include it inside a file that is
// compiled by hwy/foreach_target.h, after hwy/highway.h; see activation.cc for the manner.
//
// Coefficients are minimax fits (Remez exchange in 40 digits) on the reduced ranges that the comments name.
// Errors hold on every target; the bits may differ between targets with and without fused multiply-add. All
// operations are those that IEEE 754 defines exactly, so that one target gives the same bits on every
// processor: no estimates of reciprocals or roots, which each manufacturer computes in its own way. NaN gives
// NaN.

#if defined(LINNET_KERNELS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_SIMD_MATH_INL_H_
#undef LINNET_KERNELS_SIMD_MATH_INL_H_
#else
#define LINNET_KERNELS_SIMD_MATH_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// exp(x) with a relative error below 2e-7 for x in [-86.9, 88.7]; exactly 0 below, +inf above.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fast_exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // n = round(x / ln 2) by adding 1.5·2^23, whose low bits then hold n as an integer. Clamped so that +inf
  // stays +inf.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted =
      hn::Min(hn::MulAdd(x, hn::Set(d, 1.44269504089f), magic), hn::Set(d, 12582912.0f + 128.0f));
  const V n = hn::Sub(shifted, magic);
  // r = x − n ln 2 in two exact steps, |r| ≤ ln 2 / 2.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::MulAdd(hn::Set(d, 1.381432736e-3f), r, hn::Set(d, 8.368851272e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.166840097e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.666651952e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999999337f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // 2^n as 2 · 2^(n − 1), so that n = 128 reaches the largest floats.
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(di, shifted), hn::Set(di, 126)));
  const V power = hn::Mul(hn::Add(p, p), hn::BitCast(d, exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -86.9f)), power);
}

/// log(x) with an error below 2 ulp; log(0) = -inf, log(+inf) = +inf, NaN below 0. Subnormal x are exact too.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fast_log(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const V zero = hn::Zero(d);
  const auto tiny = hn::Lt(x, hn::Set(d, 1.17549435e-38f));
  const V normal = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 8388608.0f)), x);
  // x = m 2^e with m in [√½, √2); log m = 2 artanh s, s = (m − 1) / (m + 1), |s| < 0.1716.
  const auto bits = hn::BitCast(di, normal);
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e)));
  const V exponent = hn::Sub(hn::ConvertTo(d, e), hn::IfThenElseZero(tiny, hn::Set(d, 23.0f)));
  const V f = hn::Sub(m, hn::Set(d, 1.0f));
  const V s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0f)));
  const V s2 = hn::Mul(s, s);
  V q = hn::MulAdd(hn::Set(d, 0.2986726152f), s2, hn::Set(d, 0.3997774407f));
  q = hn::MulAdd(q, s2, hn::Set(d, 0.6666677424f));
  // 2 s = f − f s, whose leading term carries no rounding.
  const V tail = hn::MulAdd(exponent, hn::Set(d, -2.12194440e-4f), hn::Mul(s, hn::Sub(hn::Mul(s2, q), f)));
  V y = hn::MulAdd(exponent, hn::Set(d, 0.693359375f), hn::Add(f, tail));
  const V infinity = hn::Inf(d);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::Ge(x, zero), y, hn::NaN(d));
}

/// log(1 + e) for e in [0, 1], relative error below 3e-7.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fast_log1p01(D d, V e) {
  namespace hn = hwy::HWY_NAMESPACE;
  // 2 artanh s, s = e / (2 + e) ≤ 1/3.
  const V s = hn::Div(e, hn::Add(e, hn::Set(d, 2.0f)));
  const V s2 = hn::Mul(s, s);
  V q = hn::MulAdd(hn::Set(d, 0.2429222755f), s2, hn::Set(d, 0.2143017325f));
  q = hn::MulAdd(q, s2, hn::Set(d, 0.2861662867f));
  q = hn::MulAdd(q, s2, hn::Set(d, 0.3999888841f));
  q = hn::MulAdd(q, s2, hn::Set(d, 0.6666667547f));
  return hn::MulAdd(hn::Mul(s, s2), q, hn::Add(s, s));
}

/// tanh(x), relative error below 4e-7.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fast_tanh(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  const V size = hn::Abs(x);
  // An odd polynomial up to 0.625; beyond, 1 − 2 / (exp 2|x| + 1).
  const V x2 = hn::Mul(x, x);
  V p = hn::MulAdd(hn::Set(d, -5.714779449e-3f), x2, hn::Set(d, 2.064865321e-2f));
  p = hn::MulAdd(p, x2, hn::Set(d, -5.374293661e-2f));
  p = hn::MulAdd(p, x2, hn::Set(d, 0.1333148497f));
  p = hn::MulAdd(p, x2, hn::Set(d, -0.3333328371f));
  const V small = hn::MulAdd(hn::Mul(x, x2), p, x);
  const V e = fast_exp(d, hn::Add(size, size));
  const V large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), small, hn::CopySign(large, x));
}

/// 1 / (1 + exp(−x)), relative error below 4e-7 for x above −86.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fast_sigmoid(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, fast_exp(d, hn::Neg(x))));
}

/// log(1 + exp(x)), relative error below 5e-7 for x above −86.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fast_softplus(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V rest = fast_log1p01(d, fast_exp(d, hn::Neg(hn::Abs(x))));
  // x comes second: x86's maximum returns its second argument when one is NaN. Elsewhere `rest` is NaN too.
  return hn::Add(hn::Max(hn::Zero(d), x), rest);
}

/// 1 − exp(−x) for x ≥ 0, relative error below 6e-7.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V fast_one_minus_exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  // With t = tanh(x/2): 2 t / (1 + t), which does not cancel for small x.
  const V t = fast_tanh(d, hn::Mul(x, hn::Set(d, 0.5f)));
  return hn::Div(hn::Add(t, t), hn::Add(t, hn::Set(d, 1.0f)));
}

/// The standard normal distribution: density exp(−x²/2)/√(2π) and cdf Φ(x). Relative errors below 1.2e-6 for
/// |x| ≤ 5 (of Φ also in its lower tail), absolute ones below 3.5e-7.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void fast_normal(D d, V x, V& density, V& cdf) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  const V size = hn::Abs(x);
  const V e = fast_exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  // Φ(−t) exp(t²/2) = u P(u), u = 1 / (1 + 0.35 t), t in [0, 14].
  // Clamped for infinite x. The division takes no more time than an estimate that is refined once.
  const V u = hn::Div(one, hn::MulAdd(hn::Min(hn::Set(d, 20.0f), size), hn::Set(d, 0.35f), one));
  V p = hn::MulAdd(hn::Set(d, -2.914587776e-2f), u, hn::Set(d, 0.1439714679f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.2557138332f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1591737405f));
  p = hn::MulAdd(p, u, hn::Set(d, -2.310958681e-2f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.105507915f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1198328865f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1398618675f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1396214044f));
  const V tail = hn::Mul(hn::Mul(p, u), e);
  density = hn::Mul(e, hn::Set(d, 0.3989422804f));
  cdf = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
}

/// table[index % 16] of 16 floats in memory at a multiple of their size, index in every lane.
template <class D, class I>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> look_up(D d, const float* table, I index) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  constexpr std::size_t lanes = hn::MaxLanes(d);
  if constexpr (lanes == 16) {
    return hn::TableLookupLanes(hn::Load(d, table), hn::IndicesFromVec(d, hn::And(index, hn::Set(di, 15))));
  } else if constexpr (lanes == 8) {
    const auto place = hn::IndicesFromVec(d, hn::And(index, hn::Set(di, 7)));
    const auto upper = hn::RebindMask(d, hn::TestBit(index, hn::Set(di, 8)));
    return hn::IfThenElse(upper, hn::TableLookupLanes(hn::Load(d, table + 8), place),
                          hn::TableLookupLanes(hn::Load(d, table), place));
  } else {
    return hn::GatherIndex(d, table, hn::And(index, hn::Set(di, 15)));
  }
}

/// x Φ(x) with an absolute error below 1e-6, and its slope with one below 2e-5, a third as expensive as by
/// fast_normal; exactly x or 0, and 1 or 0, for |x| > 5.36.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V near_gelu(D d, V x, V& slope) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // x Φ(x) = x/2 + E(|x|), its slope 1/2 ± E'(|x|). E(|x|) is a polynomial of r = 2.8 |x| − i for the nearest
  // whole i up to 15, fitted to E and E' together.
  HWY_ALIGN static constexpr float factors[5][16] = {
      {0.0f, 0.0498241633f, 0.18748194f, 0.383583844f, 0.604908943f, 0.826655746f, 1.03700936f, 1.23447585f,
       1.42246473f, 1.60504127f, 1.78508031f, 1.96411788f, 2.14281821f, 2.32142067f, 2.49999857f,
       2.67857122f},
      {0.0f, 0.0975620002f, 0.172592297f, 0.213846847f, 0.224593565f, 0.216989934f, 0.203572065f,
       0.192004815f, 0.184679776f, 0.180952057f, 0.179372549f, 0.178805307f, 0.178630844f, 0.178584591f,
       0.178573981f, 0.178571865f},
      {0.0508870445f, 0.0446956642f, 0.0293701477f, 0.0122121535f, -0.000373491785f, -0.00614056224f,
       -0.00663870899f, -0.00475134421f, -0.00264716311f, -0.0012101233f, -0.000464971497f, -0.000152157882f,
       -4.27497653e-05f, -1.03670018e-05f, -2.17802403e-06f, -4.01762662e-07f},
      {-1.08577178e-05f, -0.00388653134f, -0.00579516264f, -0.00518167811f, -0.00305655436f, -0.000910467468f,
       0.000367306464f, 0.000738427916f, 0.000606166956f, 0.000353464537f, 0.000162863929f, 6.17746628e-05f,
       1.96898272e-05f, 5.33743605e-06f, 1.24002156e-06f, 2.12528931e-07f},
      {-0.00106101239f, -0.000785449811f, -0.000146309379f, 0.000406482926f, 0.00059070508f, 0.000445787213f,
       0.000193703221f, 1.0420059e-05f, -6.02635009e-05f, -5.89570445e-05f, -3.56836281e-05f,
       -1.63360855e-05f, -6.02359023e-06f, -1.8413341e-06f, -4.74193911e-07f, -1.49323071e-07f}};
  const V size = hn::Abs(x), half = hn::Set(d, 0.5f);
  const auto far = hn::Gt(size, hn::Set(d, 15 / 2.8f));  // and not where x is NaN
  const V place = hn::IfThenElse(far, hn::Set(d, 15.0f), hn::Mul(size, hn::Set(d, 2.8f)));
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::Add(place, magic);
  const auto i = hn::BitCast(di, shifted);
  const V r = hn::Sub(place, hn::Sub(shifted, magic));
  V even = look_up(d, factors[4], i), odd = even;
  even = hn::MulAdd(even, r, look_up(d, factors[3], i));
  odd = hn::MulAdd(odd, r, even);
  even = hn::MulAdd(even, r, look_up(d, factors[2], i));
  odd = hn::MulAdd(odd, r, even);
  even = hn::MulAdd(even, r, look_up(d, factors[1], i));
  odd = hn::MulAdd(odd, r, even);
  even = hn::MulAdd(even, r, look_up(d, factors[0], i));
  const V near = hn::Mul(size, half);
  even = hn::IfThenElse(far, near, even);
  odd = hn::IfThenElse(far, half, hn::Mul(odd, hn::Set(d, 2.8f)));
  slope = hn::Add(half, hn::CopySign(odd, x));
  return hn::MulAdd(x, half, even);
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V near_gelu(D d, V x) {
  V slope;
  return near_gelu(d, x, slope);
}

/// Sine and cosine of x, absolute errors below 2e-7 for |x| ≤ 1e4. Far beyond, where a float has no digits
/// left for an angle, still numbers in [-1, 1]; NaN for infinities.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void fast_sin_cos(D d, V x, V& sine, V& cosine) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f);
  // n = round(2 x / π) in the low bits, as in fast_exp. π/2 in three parts (Cody and Waite 1980), of which
  // the first two have so few bits that their products with n ≤ 2^13 are exact.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0.636619772368f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 1.5703125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 4.837512969970703125e-4f), r);
  r = hn::NegMulAdd(n, hn::Set(d, 7.549789954891882e-8f), r);
  r = hn::IfThenElse(hn::Gt(hn::Abs(r), one), one, r);
  const V r2 = hn::Mul(r, r);
  V s = hn::MulAdd(hn::Set(d, -1.9496165212959e-4f), r2, hn::Set(d, 8.331983934430e-3f));
  s = hn::MulAdd(s, r2, hn::Set(d, -0.16666650794721f));
  s = hn::MulAdd(hn::Mul(s, r2), r, r);
  V c = hn::MulAdd(hn::Set(d, 2.4439410714494e-5f), r2, hn::Set(d, -1.3887377303728e-3f));
  c = hn::MulAdd(c, r2, hn::Set(d, 4.1666647108330e-2f));
  c = hn::MulAdd(hn::Mul(c, r2), r2, hn::NegMulAdd(hn::Set(d, 0.5f), r2, one));
  // Quarter turns: odd ones swap the two; the sine is negative in quarters 2 and 3, the cosine in 1 and 2.
  const auto quarter = hn::BitCast(di, shifted);
  const auto odd = hn::RebindMask(d, hn::TestBit(quarter, hn::Set(di, 1)));
  const auto turn = hn::Set(di, 2);
  const V sine_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(quarter, turn)));
  const V cosine_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(hn::Add(quarter, hn::Set(di, 1)), turn)));
  sine = hn::Xor(hn::IfThenElse(odd, c, s), sine_sign);
  cosine = hn::Xor(hn::IfThenElse(odd, s, c), cosine_sign);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
