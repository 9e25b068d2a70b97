#pragma once

#include <algorithm>

#include "attention/arguments.h"

namespace linnet {

// For the references, which go row by row through dense f64 tensors.

/// Calls body(b, i, h) for every query of a call.
template <class Body>
void for_each_query(const AttentionSizes& sizes, const Body& body) {
  for (std::int64_t b = 0; b < sizes.batch; ++b)
    for (std::int64_t i = 0; i < sizes.queries; ++i)
      for (std::int64_t h = 0; h < sizes.heads; ++h) body(b, i, h);
}

inline double dot(const double* x, const double* y, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

/// Zeros for x [B, N, H, D].
inline void clear(View<double> x) {
  for (std::int64_t b = 0; b < x.extent(0); ++b)
    for (std::int64_t i = 0; i < x.extent(1); ++i)
      for (std::int64_t h = 0; h < x.extent(2); ++h) std::fill_n(x.at(b, i, h), x.extent(3), 0.0);
}

}  // namespace linnet
