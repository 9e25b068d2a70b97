#include <cassert>
#include <cstring>

#include "kernels/loss.h"
#include "kernels/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/categorical_loss.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"
#include "kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline float largest(const float* x, std::int64_t n) {
  const FloatTag d;
  FloatVector most = hn::Set(d, x[0]);
  for_vectors(n, [&](auto lanes, std::int64_t j) { most = hn::Max(most, lanes.load(x + j, x[0])); });
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

inline float log_of(float x) {
  const FloatTag d;
  return hn::GetLane(fast_log(d, hn::Set(d, x)));
}

// Σ exp(x_j − most); the terms go to `terms` where it is not null. A NaN in x makes the sum NaN.
inline float sum_of_exp(float* terms, const float* x, std::int64_t n, float most) {
  const FloatTag d;
  const FloatVector shift = hn::Set(d, most);
  FloatVector sum = hn::Zero(d);
  for_vectors(n, [&](auto lanes, std::int64_t j) {
    const FloatVector e = fast_exp(d, hn::Sub(lanes.load(x + j), shift));
    if (terms != nullptr) lanes.store(e, terms + j);
    sum = hn::Add(sum, lanes.keep(e, 0));
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

inline void multiply_row(float* y, std::int64_t n, float factor) {
  for_vectors(n, [&](auto lanes, std::int64_t j) {
    lanes.store(hn::Mul(lanes.load(y + j), hn::Set(FloatTag(), factor)), y + j);
  });
}

void loss_rows(float* nll, View<float> dlogits, View<const float> logits, const std::int32_t* targets,
               float weight, std::uint8_t* correct) {
  const std::int64_t n = logits.extent(1);
  for (std::int64_t i = 0; i < logits.extent(0); ++i) {
    float* gradient = dlogits.data() == nullptr ? nullptr : dlogits.at(i);
    const std::int32_t target = targets[i];
    if (target < 0) {
      nll[i] = 0;
      if (correct != nullptr) correct[i] = 0;
      if (gradient != nullptr) std::memset(gradient, 0, static_cast<std::size_t>(n) * sizeof(float));
      continue;
    }
    const float* row = logits.at(i);
    const float most = largest(row, n);
    const float chosen = row[target];
    const float sum = sum_of_exp(gradient, row, n, most);
    nll[i] = log_of(sum) + (most - chosen);
    if (correct != nullptr) correct[i] = chosen >= most && sum == sum;
    if (gradient != nullptr) {
      multiply_row(gradient, n, weight / sum);
      gradient[target] -= weight;
    }
  }
}

void softmax(View<float> y, View<const float> logits) {
  const std::int64_t n = logits.extent(1);
  for (std::int64_t i = 0; i < logits.extent(0); ++i) {
    const float* row = logits.at(i);
    const float sum = sum_of_exp(y.at(i), row, n, largest(row, n));
    multiply_row(y.at(i), n, 1 / sum);
  }
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(loss_rows);
HWY_EXPORT(softmax);

}  // namespace

void categorical_loss(Context& context, std::span<float> nll, View<float> dlogits, View<const float> logits,
                      std::span<const std::int32_t> targets, float weight, std::span<std::uint8_t> correct) {
  const std::int64_t rows = logits.extent(0);
  assert(static_cast<std::int64_t>(nll.size()) == rows && static_cast<std::int64_t>(targets.size()) == rows);
  assert(correct.empty() || static_cast<std::int64_t>(correct.size()) == rows);
  const auto block = HWY_DYNAMIC_DISPATCH(loss_rows);
  parallel_blocks(context, rows, rows_of_piece(logits.extent(1)), [&](std::int64_t begin, std::int64_t end) {
    block(nll.data() + begin, dlogits.data() == nullptr ? dlogits : dlogits.slice(0, begin, end),
          logits.slice(0, begin, end), targets.data() + begin, weight,
          correct.empty() ? nullptr : correct.data() + begin);
  });
}

void softmax_rows(Context& context, View<float> y, View<const float> logits) {
  assert(y.extent(0) == logits.extent(0) && y.extent(1) == logits.extent(1));
  if (logits.size() == 0) return;
  const auto block = HWY_DYNAMIC_DISPATCH(softmax);
  parallel_blocks(context, logits.extent(0), rows_of_piece(logits.extent(1)),
                  [&](std::int64_t begin, std::int64_t end) {
                    block(y.slice(0, begin, end), logits.slice(0, begin, end));
                  });
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
