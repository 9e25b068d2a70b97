#include <cmath>
#include <cstddef>

#include "attention/linear/linear_kernels.h"
#include "attention/tiles/fade.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linear/linear_step.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Vec32 = hn::Vec<F32>;

/// How a sum takes a token: sum = γ sum + k v, or only where γ = 1, and with what was rounded off (Kahan
/// 1965) or not.
template <bool kFade, bool kCompensated>
struct Taking {
  static constexpr bool kTakes = true;
  Fade decay;

  HWY_INLINE Vec32 operator()(float* HWY_RESTRICT sum, float* HWY_RESTRICT rest, Vec32 k, Vec32 v) const {
    const F32 d;
    const Vec32 all = hn::LoadU(d, sum);
    Vec32 next;
    if constexpr (!kCompensated) {
      next = hn::MulAdd(k, v, kFade ? hn::Mul(hn::Set(d, decay.factor), all) : all);
    } else if constexpr (!kFade) {
      const Vec32 wanted = hn::MulSub(k, v, hn::LoadU(d, rest));
      next = hn::Add(all, wanted);
      hn::StoreU(hn::Sub(hn::Sub(next, all), wanted), d, rest);
    } else {  // as collect_vector of tiles/gemm-inl.h
      const Vec32 factor = hn::Set(d, decay.factor), old = hn::Mul(hn::Set(d, decay.kept), all);
      const Vec32 missing = hn::MulSub(k, v, hn::Mul(factor, hn::LoadU(d, rest)));
      const Vec32 wanted = hn::NegMulAdd(hn::Set(d, decay.lost), all, missing), sure = hn::Add(old, wanted);
      const auto small = hn::Lt(hn::Abs(all), hn::Set(d, Fade::least));
      hn::StoreU(hn::IfThenZeroElse(small, hn::Sub(hn::Sub(sure, old), wanted)), d, rest);
      next = hn::IfThenElse(small, hn::MulAdd(k, v, hn::Mul(factor, all)), sure);
    }
    hn::StoreU(next, d, sum);
    return next;
  }

  /// The same for one number.
  HWY_INLINE float single(float* sum, float* rest, float k, float v) const {
    const float faded = kFade ? decay.factor * *sum : *sum;
    if (!kCompensated || (kFade && std::abs(*sum) < Fade::least)) {
      if (kCompensated) *rest = 0;
      return *sum = faded + k * v;
    }
    const float old = kFade ? decay.kept * *sum : *sum;
    float wanted = k * v - (kFade ? decay.factor * *rest : *rest);
    if constexpr (kFade) wanted -= decay.lost * *sum;
    const float next = old + wanted;
    *rest = (next - old) - wanted;
    return *sum = next;
  }
};

/// There is no token: the sums are read.
struct Reading {
  static constexpr bool kTakes = false;

  HWY_INLINE Vec32 operator()(const float* HWY_RESTRICT sum, const float*, Vec32, Vec32) const {
    const F32 d;
    return hn::LoadU(d, sum);
  }
  HWY_INLINE float single(const float* sum, const float*, float, float) const { return *sum; }
};

/// Numbers of the token from `from` on, or 0 where there is none.
template <class Take>
HWY_INLINE Vec32 load_taken(const float* HWY_RESTRICT from, std::size_t at) {
  const F32 d;
  if constexpr (Take::kTakes) return hn::LoadU(d, from + at);
  return hn::Zero(d);
}
template <class Take>
HWY_INLINE float taken(const float* from, std::size_t at) {
  if constexpr (Take::kTakes) return from[at];
  return 0;
}

template <class Take>
float step_normaliser(const LinearStep& step, const Take& take) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d), count = static_cast<std::size_t>(step.features);
  Vec32 sum = hn::Zero(d);
  std::size_t f = 0;
  for (; f + lanes <= count; f += lanes) {
    const Vec32 next =
        take(step.z + f, step.z_rest + f, load_taken<Take>(step.key_features, f), hn::Set(d, 1.0f));
    sum = hn::MulAdd(hn::LoadU(d, step.query_features + f), next, sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; f < count; ++f)
    total += step.query_features[f] *
             take.single(step.z + f, step.z_rest + f, taken<Take>(step.key_features, f), 1.0f);
  return total;
}

/// kVectors vectors of columns of S and of out, from column c on.
template <int kVectors, class Take>
HWY_INLINE void step_columns(const LinearStep& step, const Take& take, std::size_t c, float scale) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  Vec32 value[kVectors], result[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    value[i] = load_taken<Take>(step.value, c + i * lanes);
    result[i] = hn::Zero(d);
  }
  for (std::int64_t f = 0; f < step.features; ++f) {
    const Vec32 key = hn::Set(d, taken<Take>(step.key_features, static_cast<std::size_t>(f))),
                query = hn::Set(d, step.query_features[f]);
    const std::size_t row = static_cast<std::size_t>(f * step.value_dim) + c;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const std::size_t at = row + i * lanes;
      result[i] = hn::MulAdd(query, take(step.sums + at, step.sums_rest + at, key, value[i]), result[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i)
    hn::StoreU(hn::Mul(result[i], hn::Set(d, scale)), d, step.out + c + i * lanes);
}

template <class Take>
void step_with(const LinearStep& step, const Take& take) {
  const std::size_t lanes = hn::Lanes(F32()), columns = static_cast<std::size_t>(step.value_dim);
  const float dot = step_normaliser(step, take);
  const float denominator = dot + step.epsilon;
  const bool zero = denominator <= step.least && (step.must_be_positive || denominator >= -step.least);
  const float scale = !step.normalise ? step.scale : zero ? 0.0f : 1.0f / denominator;
  std::size_t c = 0;
  for (; c + 4 * lanes <= columns; c += 4 * lanes) step_columns<4>(step, take, c, scale);
  for (; c + 2 * lanes <= columns; c += 2 * lanes) step_columns<2>(step, take, c, scale);
  for (; c + lanes <= columns; c += lanes) step_columns<1>(step, take, c, scale);
  for (; c < columns; ++c) {
    float result = 0;
    for (std::int64_t f = 0; f < step.features; ++f) {
      const std::size_t at = static_cast<std::size_t>(f) * columns + c;
      result +=
          step.query_features[f] * take.single(step.sums + at, step.sums_rest + at,
                                               taken<Take>(step.key_features, static_cast<std::size_t>(f)),
                                               taken<Take>(step.value, c));
    }
    step.out[c] = result * scale;
  }
}

void step_head(const LinearStep& step) {
  if (step.key_features == nullptr) return step_with(step, Reading{});
  const bool fade = step.decay != 1, compensated = step.compensated;
  if (fade && compensated) return step_with(step, Taking<true, true>{Fade::of(step.decay)});
  if (fade) return step_with(step, Taking<true, false>{Fade::of(step.decay)});
  if (compensated) return step_with(step, Taking<false, true>{});
  step_with(step, Taking<false, false>{});
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(step_head);

void linear_step_head(const LinearStep& step) { HWY_DYNAMIC_DISPATCH(step_head)(step); }

}  // namespace linnet
#endif  // HWY_ONCE
