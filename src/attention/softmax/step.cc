#include <algorithm>
#include <limits>

#include "attention/softmax/tiles.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/softmax/step.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/bf16-inl.h"
#include "kernels/simd_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::softmax::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// The scores of this many keys are kept before their values are read.
constexpr std::int64_t kSlice = 256;

// Keys of which plain sums are taken, and a group ends only with its last one.
constexpr std::int64_t kGroup = 24 * kSlice;

HWY_INLINE V load(const float* from) { return hn::LoadU(D(), from); }
HWY_INLINE V load(const bf16* from) {
  const D d;
  const hn::Rebind<std::uint16_t, D> d16;
  return kernels::HWY_NAMESPACE::widen_bits(d, hn::LoadU(d16, &from->bits));
}

/// q·k for T keys, one after another in memory.
template <int T, class Element>
HWY_INLINE void dots(std::int64_t dim, const float* query, const Element* keys, float* scores) {
  const D d;
  const std::int64_t lanes = hn::Lanes(d);
  V sum[T];
  for (int t = 0; t < T; ++t) sum[t] = hn::Zero(d);
  std::int64_t e = 0;
  for (; e + lanes <= dim; e += lanes) {
    const V q = hn::LoadU(d, query + e);
    for (int t = 0; t < T; ++t) sum[t] = hn::MulAdd(q, load(keys + t * dim + e), sum[t]);
  }
  if (e < dim) {
    // What lies behind a key is another one, NaN perhaps: masked, not multiplied by 0.
    const auto rest = hn::FirstN(d, static_cast<std::size_t>(dim - e));
    const V q = hn::LoadU(d, query + e);
    for (int t = 0; t < T; ++t) {
      const V key = hn::IfThenElseZero(rest, load(keys + t * dim + e));
      sum[t] = hn::MulAdd(hn::IfThenElseZero(rest, q), key, sum[t]);
    }
  }
  for (int t = 0; t < T; ++t) scores[t] = hn::GetLane(hn::SumOfLanes(d, sum[t]));
}

/// out[m] = decay · out[m] + Σ_t p[t] values[t][m] for N vectors of m.
template <int N, class Element>
HWY_INLINE void add_weighted_values(std::int64_t count, std::int64_t dim, const float* p,
                                    const Element* values, float decay, float* out) {
  const D d;
  const std::int64_t lanes = hn::Lanes(d);
  // Two sums a column hide the latency of the additions.
  V even[N], odd[N];
  for (int n = 0; n < N; ++n) {
    even[n] = hn::Mul(hn::Set(d, decay), hn::Load(d, out + n * lanes));
    odd[n] = hn::Zero(d);
  }
  std::int64_t t = 0;
  for (; t + 2 <= count; t += 2) {
    const V p0 = hn::Set(d, p[t]), p1 = hn::Set(d, p[t + 1]);
    for (int n = 0; n < N; ++n) {
      even[n] = hn::MulAdd(p0, load(values + t * dim + n * lanes), even[n]);
      odd[n] = hn::MulAdd(p1, load(values + (t + 1) * dim + n * lanes), odd[n]);
    }
  }
  if (t < count) {
    const V last = hn::Set(d, p[t]);
    for (int n = 0; n < N; ++n) even[n] = hn::MulAdd(last, load(values + t * dim + n * lanes), even[n]);
  }
  for (int n = 0; n < N; ++n) hn::Store(hn::Add(even[n], odd[n]), d, out + n * lanes);
}

template <class Element>
HWY_INLINE void step_elements(const StepHead& head) {
  const D d;
  const std::int64_t head_dim = head.keys.columns, value_dim = head.values.columns;
  const auto* const all_keys = reinterpret_cast<const Element*>(head.keys.data);
  const auto* const all_values = reinterpret_cast<const Element*>(head.values.data);
  const std::int64_t lanes = hn::Lanes(d);
  float* scores = head.scratch;
  float* query = scores + kSlice;
  float* out = query + (head_dim + 31) / 16 * 16;
  float* groups = out + (value_dim + 15) / 16 * 16;
  const std::int64_t vectors = (value_dim + lanes - 1) / lanes;
  for (std::int64_t e = 0; e < head_dim; ++e) query[e] = head.scale * head.query[e];
  std::fill_n(out, vectors * lanes, 0.0f);
  std::fill_n(groups, vectors * lanes, 0.0f);

  constexpr float none = -std::numeric_limits<float>::infinity();
  float maximum = none, sum = 0;
  // Sums over the groups of slices that lie behind: a plain sum over a million keys would drift.
  float groups_maximum = none, groups_sum = 0;
  const auto end_group = [&]() HWY_ATTR {
    const V ratio =
        kernels::HWY_NAMESPACE::fast_exp(d, hn::Sub(hn::Set(d, groups_maximum), hn::Set(d, maximum)));
    const V fade = groups_maximum == maximum ? hn::Set(d, 1.0f) : ratio;
    for (std::int64_t m = 0; m < vectors * lanes; m += lanes) {
      hn::Store(hn::MulAdd(fade, hn::Load(d, groups + m), hn::Load(d, out + m)), d, groups + m);
      hn::Store(hn::Zero(d), d, out + m);
    }
    groups_sum = hn::GetLane(fade) * groups_sum + sum;
    groups_maximum = maximum;
    sum = 0;
  };
  for (std::int64_t j = 0; j < head.count; j += kSlice) {
    const std::int64_t count = std::min(kSlice, head.count - j);
    const Element* keys = all_keys + j * head_dim;
    std::int64_t t = 0;
    for (; t + 4 <= count; t += 4) dots<4>(head_dim, query, keys + t * head_dim, scores + t);
    for (; t < count; ++t) dots<1>(head_dim, query, keys + t * head_dim, scores + t);

    std::fill(scores + count, scores + (count + lanes - 1) / lanes * lanes,
              -std::numeric_limits<float>::infinity());
    V tops = hn::Set(d, maximum);
    for (t = 0; t < count; t += lanes) tops = hn::Max(tops, hn::Load(d, scores + t));
    const float top = hn::GetLane(hn::MaxOfLanes(d, tops));
    V total = hn::Zero(d);
    for (t = 0; t < count; t += lanes) {
      const V p = kernels::HWY_NAMESPACE::fast_exp(d, hn::Sub(hn::Load(d, scores + t), hn::Set(d, top)));
      total = hn::Add(total, p);
      hn::Store(p, d, scores + t);
    }
    const float decay =
        hn::GetLane(kernels::HWY_NAMESPACE::fast_exp(d, hn::Sub(hn::Set(d, maximum), hn::Set(d, top))));
    sum = decay * sum + hn::GetLane(hn::SumOfLanes(d, total));
    maximum = top;

    const Element* values = all_values + j * value_dim;
    std::int64_t v = 0;
    for (; v + 4 <= vectors; v += 4)
      add_weighted_values<4>(count, value_dim, scores, values + v * lanes, decay, out + v * lanes);
    for (; v < vectors; ++v)
      add_weighted_values<1>(count, value_dim, scores, values + v * lanes, decay, out + v * lanes);
    if (count == kSlice && (j + kSlice) % kGroup == 0) end_group();
  }
  if (head.count >= kGroup) {
    end_group();
    out = groups;
    sum = groups_sum;
  }
  for (std::int64_t m = 0; m < value_dim; ++m) head.out[m] = out[m] / sum;
}

void step_head_of(const StepHead& head) {
  if (head.keys.half())
    step_elements<bf16>(head);
  else
    step_elements<float>(head);
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::softmax {

HWY_EXPORT(step_head_of);

void step_head(const StepHead& head) { HWY_DYNAMIC_DISPATCH(step_head_of)(head); }

std::size_t step_scratch(std::int64_t head_dim, std::int64_t value_dim) {
  return static_cast<std::size_t>(256 + head_dim + 2 * value_dim + 80);
}

}  // namespace linnet::softmax
#endif
