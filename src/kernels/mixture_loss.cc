// The mixture of discretised logistics, one row of `parameters` per lane. With x the value's place in [−1,
// 1], h half the width of its bin, and per component a = (x + h − μ) e^-s, b = (x − h − μ) e^-s, w = a − b:
//   log P = log σ(a) + log σ(−b) + log(1 − exp(−w))   in the middle, exact and without cancellation
//   everywhere, log σ(a) for the first value, log σ(−b) for the last.
#include <cassert>

#include "base/workspace.h"
#include "kernels/loss.h"
#include "kernels/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixture_loss.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"
#include "kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Floats of working memory: per lane the 3 K parameters, and for K components log P, its slopes by μ and s.
std::int64_t mixture_memory(std::int64_t components) {
  return 6 * components * static_cast<std::int64_t>(hn::Lanes(FloatTag()));
}

// log P of one component and its derivatives by μ and s. `first` and `last` are masks of the end bins.
template <class Mask>
HWY_INLINE FloatVector component(FloatVector x, FloatVector half, Mask first, Mask last, FloatVector mean,
                                 FloatVector log_scale, FloatVector& by_mean, FloatVector& by_scale) {
  const FloatTag d;
  const auto clamped = hn::Lt(log_scale, hn::Set(d, least_mixture_log_scale));
  const FloatVector s = hn::IfThenElse(clamped, hn::Set(d, least_mixture_log_scale), log_scale);
  const FloatVector inverse = fast_exp(d, hn::Neg(s));
  const FloatVector centred = hn::Sub(x, mean);
  const FloatVector a = hn::Mul(hn::Add(centred, half), inverse);
  const FloatVector b = hn::Mul(hn::Sub(centred, half), inverse);
  const FloatVector w = hn::Mul(hn::Add(half, half), inverse);
  const FloatVector width = fast_one_minus_exp(d, w);
  const FloatVector lower = hn::Neg(fast_softplus(d, hn::Neg(a)));  // log σ(a)
  const FloatVector upper = hn::Neg(fast_softplus(d, b));           // log σ(−b)
  const FloatVector above = fast_sigmoid(d, hn::Neg(a)), below = fast_sigmoid(d, b);
  const auto end = hn::Or(first, last);
  // Each of the three terms is there or not, with its derivative.
  const FloatVector log_p =
      hn::Add(hn::Add(hn::IfThenZeroElse(last, lower), hn::IfThenZeroElse(first, upper)),
              hn::IfThenZeroElse(end, fast_log(d, width)));
  const FloatVector slope_a = hn::IfThenZeroElse(last, above);   // d log σ(a) / da
  const FloatVector slope_b = hn::IfThenZeroElse(first, below);  // −d log σ(−b) / db
  // w exp(−w) / (1 − exp(−w)), the derivative of the third term by −s: 1 for w = 0, where s is so large that
  // floats do not hold its inverse.
  const FloatVector quotient = hn::Div(hn::Mul(w, fast_exp(d, hn::Neg(w))), width);
  const FloatVector slope_w =
      hn::IfThenZeroElse(end, hn::IfThenElse(hn::Eq(w, hn::Zero(d)), hn::Set(d, 1.0f), quotient));
  by_mean = hn::Mul(inverse, hn::Sub(slope_b, slope_a));
  by_scale = hn::IfThenZeroElse(clamped, hn::Sub(hn::NegMulAdd(a, slope_a, hn::Mul(b, slope_b)), slope_w));
  return log_p;
}

void mixture_rows(float* nll, View<float> dparameters, View<const float> parameters,
                  const std::int32_t* targets, std::int64_t levels, float weight, float* memory) {
  const FloatTag d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t components = parameters.extent(1) / 3;
  const std::int64_t rows = parameters.extent(0);
  const float step = 2.0f / static_cast<float>(levels - 1);
  float* const logits = memory;
  float* const means = logits + components * lanes;
  float* const scales = means + components * lanes;
  float* const logs = scales + components * lanes;
  float* const by_means = logs + components * lanes;
  float* const by_scales = by_means + components * lanes;
  HWY_ALIGN float place[hn::MaxLanes(d)];
  HWY_ALIGN float result[hn::MaxLanes(d)];
  for (std::int64_t row = 0; row < rows; row += lanes) {
    const std::int64_t count = std::min(lanes, rows - row);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      // Lanes past the end repeat the last row.
      const std::int64_t i = row + std::min(lane, count - 1);
      const float* from = parameters.at(i);
      for (std::int64_t k = 0; k < 3 * components; ++k) memory[k * lanes + lane] = from[k];
      place[lane] = static_cast<float>(std::max(targets[i], 0));
    }
    const FloatVector value = hn::Load(d, place);
    const auto first = hn::Eq(value, hn::Zero(d));
    const auto last = hn::Eq(value, hn::Set(d, static_cast<float>(levels - 1)));
    const FloatVector x = hn::MulAdd(value, hn::Set(d, step), hn::Set(d, -1.0f));
    const FloatVector half = hn::Set(d, 0.5f * step);

    FloatVector most_weight = hn::LoadU(d, logits), most_joint = most_weight;
    for (std::int64_t k = 0; k < components; ++k) {
      const std::int64_t at = k * lanes;
      FloatVector by_mean, by_scale;
      const FloatVector logit = hn::LoadU(d, logits + at);
      const FloatVector log_p = component(x, half, first, last, hn::LoadU(d, means + at),
                                          hn::LoadU(d, scales + at), by_mean, by_scale);
      const FloatVector joint = hn::Add(logit, log_p);
      hn::StoreU(joint, d, logs + at);
      hn::StoreU(by_mean, d, by_means + at);
      hn::StoreU(by_scale, d, by_scales + at);
      most_weight = k == 0 ? logit : hn::Max(most_weight, logit);
      most_joint = k == 0 ? joint : hn::Max(most_joint, joint);
    }
    FloatVector weights = hn::Zero(d), joints = hn::Zero(d);
    for (std::int64_t k = 0; k < components; ++k) {
      const std::int64_t at = k * lanes;
      const FloatVector prior = fast_exp(d, hn::Sub(hn::LoadU(d, logits + at), most_weight));
      const FloatVector joint = fast_exp(d, hn::Sub(hn::LoadU(d, logs + at), most_joint));
      weights = hn::Add(weights, prior);
      joints = hn::Add(joints, joint);
      hn::StoreU(prior, d, logits + at);
      hn::StoreU(joint, d, logs + at);
    }
    // −log Σ π_k P_k, from the two sums of exponentials.
    const FloatVector likelihood =
        hn::Add(hn::Sub(most_joint, most_weight), hn::Sub(fast_log(d, joints), fast_log(d, weights)));
    hn::Store(hn::Neg(likelihood), d, result);
    for (std::int64_t lane = 0; lane < count; ++lane)
      nll[row + lane] = targets[row + lane] < 0 ? 0 : result[lane];
    if (dparameters.data() == nullptr) continue;

    const FloatVector per_weight = hn::Div(hn::Set(d, weight), weights);
    const FloatVector per_joint = hn::Div(hn::Set(d, -weight), joints);
    for (std::int64_t k = 0; k < components; ++k) {
      const std::int64_t at = k * lanes;
      // −weight · responsibility of the component.
      const FloatVector share = hn::Mul(hn::LoadU(d, logs + at), per_joint);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, logits + at), per_weight, share), d, logits + at);
      hn::StoreU(hn::Mul(share, hn::LoadU(d, by_means + at)), d, means + at);
      hn::StoreU(hn::Mul(share, hn::LoadU(d, by_scales + at)), d, scales + at);
    }
    for (std::int64_t lane = 0; lane < count; ++lane) {
      float* to = dparameters.at(row + lane);
      const bool counts = targets[row + lane] >= 0;
      for (std::int64_t k = 0; k < 3 * components; ++k) to[k] = counts ? memory[k * lanes + lane] : 0;
    }
  }
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(mixture_memory);
HWY_EXPORT(mixture_rows);

}  // namespace

void logistic_mixture_loss(Context& context, std::span<float> nll, View<float> dparameters,
                           View<const float> parameters, std::span<const std::int32_t> targets,
                           std::int64_t levels, float weight) {
  const std::int64_t rows = parameters.extent(0), components = parameters.extent(1) / 3;
  assert(levels >= 2 && parameters.extent(1) % 3 == 0 && components > 0);
  assert(static_cast<std::int64_t>(nll.size()) == rows && static_cast<std::int64_t>(targets.size()) == rows);
  const auto block = HWY_DYNAMIC_DISPATCH(mixture_rows);
  const auto floats = static_cast<std::size_t>(HWY_DYNAMIC_DISPATCH(mixture_memory)(components));
  parallel_blocks(context, rows, 128, [&](Context& own, std::int64_t begin, std::int64_t end) {
    Workspace workspace(own);
    block(nll.data() + begin, dparameters.data() == nullptr ? dparameters : dparameters.slice(0, begin, end),
          parameters.slice(0, begin, end), targets.data() + begin, levels, weight, workspace.take(floats));
  });
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
