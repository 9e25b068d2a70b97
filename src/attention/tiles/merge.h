#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace linnet {

/// Softmax attention over two sets of keys from that over each (Milakov and Gimelshein 2018): out [dim] and
/// its log-sum-exp become those over both, `other` and `other_log_sum` are the second set's. −∞ stands for no
/// key.
inline void merge(float* out, float& log_sum, const float* other, float other_log_sum, std::int64_t dim) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  if (other_log_sum == none) return;
  if (log_sum == none) {
    std::copy_n(other, dim, out);
    log_sum = other_log_sum;
    return;
  }
  const float top = std::max(log_sum, other_log_sum);
  const float here = std::exp(log_sum - top), there = std::exp(other_log_sum - top), sum = here + there;
  for (std::int64_t m = 0; m < dim; ++m) out[m] = (here * out[m] + there * other[m]) / sum;
  log_sum = top + std::log(sum);
}

}  // namespace linnet
