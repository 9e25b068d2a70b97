#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace linnet {

/// Softmax attention over two sets of keys from that over each (Milakov and Gimelshein 2018): out [dim], the
/// largest score and the sum of exp(score − maximum), 0 where there is no key, become those over both; the
/// `other` ones are the second set's. A log-sum-exp in f32 would not do: where it is large its rounding
/// counts as an error of the weights.
inline void merge(float* out, float& maximum, float& sum, const float* other, float other_maximum,
                  float other_sum, std::int64_t dim) {
  if (other_sum == 0) return;
  if (sum == 0) {
    std::copy_n(other, dim, out);
    maximum = other_maximum;
    sum = other_sum;
    return;
  }
  const float top = std::max(maximum, other_maximum);
  const float here = sum * std::exp(maximum - top), there = other_sum * std::exp(other_maximum - top);
  const float total = here + there;
  for (std::int64_t m = 0; m < dim; ++m) out[m] = (here * out[m] + there * other[m]) / total;
  maximum = top;
  sum = total;
}

}  // namespace linnet
