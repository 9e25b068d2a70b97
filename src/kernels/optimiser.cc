#include "kernels/optimiser.h"

#include <cassert>
#include <cmath>

#include "kernels/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimiser.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// m and v move; p = keep · p − rate · m / (√(v · variance) + epsilon), or p = keep · p − rate · m without
// `adaptive`.
void moments_piece(float* p, float* m, float* v, const float* g, std::int64_t n, const AdamStep& step,
                   bool adaptive, float rate, float variance) {
  const FloatTag d;
  const FloatVector beta1 = hn::Set(d, step.beta1), rest1 = hn::Set(d, 1 - step.beta1);
  const FloatVector beta2 = hn::Set(d, step.beta2), rest2 = hn::Set(d, 1 - step.beta2);
  const FloatVector keep = hn::Set(d, 1 - step.learning_rate * step.weight_decay);
  const FloatVector length = hn::Set(d, rate), correction = hn::Set(d, variance),
                    epsilon = hn::Set(d, step.epsilon), factor = hn::Set(d, step.factor);
  constexpr std::int64_t ahead = 512;  // from memory the hardware alone fetches too late
  for_vectors(n, [&](auto lanes, std::int64_t i) {
    for (const float* changed : {p, m, v}) __builtin_prefetch(changed + i + ahead, 1);
    __builtin_prefetch(g + i + ahead);
    const FloatVector gradient = hn::Mul(factor, lanes.load(g + i));
    const FloatVector first = hn::MulAdd(beta1, lanes.load(m + i), hn::Mul(rest1, gradient));
    const FloatVector second =
        hn::MulAdd(beta2, lanes.load(v + i), hn::Mul(rest2, hn::Mul(gradient, gradient)));
    lanes.store(first, m + i);
    lanes.store(second, v + i);
    FloatVector move = hn::Mul(length, first);
    if (adaptive) move = hn::Div(move, hn::Add(hn::Sqrt(hn::Mul(second, correction)), epsilon));
    lanes.store(hn::Sub(hn::Mul(keep, lanes.load(p + i)), move), p + i);
  });
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(moments_piece);

void update(Context& context, std::span<float> parameters, std::span<float> m, std::span<float> v,
            std::span<const float> gradients, const AdamStep& step, bool adaptive, double rate,
            double variance) {
  assert(m.size() == parameters.size() && v.size() == parameters.size() &&
         gradients.size() == parameters.size());
  assert(step.step >= 1);
  const double bias1 = 1 - std::pow(static_cast<double>(step.beta1), static_cast<double>(step.step));
  const auto piece = HWY_DYNAMIC_DISPATCH(moments_piece);
  parallel_blocks(context, static_cast<std::int64_t>(parameters.size()), piece_elements,
                  [&](std::int64_t begin, std::int64_t end) {
                    piece(parameters.data() + begin, m.data() + begin, v.data() + begin,
                          gradients.data() + begin, end - begin, step, adaptive,
                          static_cast<float>(rate / bias1), static_cast<float>(variance));
                  });
}

}  // namespace

void adamw_update(Context& context, std::span<float> parameters, std::span<float> m, std::span<float> v,
                  std::span<const float> gradients, const AdamStep& step) {
  const double power = std::pow(static_cast<double>(step.beta2), static_cast<double>(step.step));
  update(context, parameters, m, v, gradients, step, true, step.learning_rate, 1 / (1 - power));
}

void radam_update(Context& context, std::span<float> parameters, std::span<float> m, std::span<float> v,
                  std::span<const float> gradients, const AdamStep& step) {
  const double beta2 = step.beta2, t = static_cast<double>(step.step);
  const double power = std::pow(beta2, t);
  const double limit = 2 / (1 - beta2) - 1;
  const double rho = limit - 2 * t * power / (1 - power);
  if (rho <= 5) return update(context, parameters, m, v, gradients, step, false, step.learning_rate, 1);
  const double rectification = std::sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho));
  const double rate = step.learning_rate * rectification * std::sqrt(1 - power);
  update(context, parameters, m, v, gradients, step, true, rate, 1);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
