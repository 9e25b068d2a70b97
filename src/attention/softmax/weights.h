#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "attention/softmax/tiles.h"

namespace linnet::softmax {

// Where log-sum-exps are large their rounding keeps the probabilities exp(score − log-sum-exp) of a query
// from adding up to 1: the backward pass divides them by their sum then, over all that the query sees.

/// Whether that counts for one of `count` queries, whose log-sum-exps are `stride` apart.
inline bool has_large(const float* log_sum, std::int64_t stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float size = std::abs(log_sum[i * stride]);
    if (size >= kLargeLogSum && std::isfinite(size)) return true;
  }
  return false;
}

/// weight [count] = 1 / Σ_j exp(score_j − log-sum-exp), a sum that is not 1 where the log-sum-exp lost
/// digits; 1 where it is 0, as it is without keys, and where it is no number.
inline void weigh(std::span<const double> sums, float* weight) {
  for (const double sum : sums)
    *weight++ = sum > 0 && std::isfinite(sum) ? static_cast<float>(1 / sum) : 1.0f;
}

}  // namespace linnet::softmax
