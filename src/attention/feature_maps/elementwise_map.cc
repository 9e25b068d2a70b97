#include "attention/feature_maps/elementwise_map.h"

#include <algorithm>

namespace linnet {

void ElementwiseMap::exact_features(double* y, double* log_scale, const double* x, std::int64_t rows,
                                    std::int64_t head_dim) const {
  for (std::int64_t i = 0; i < rows * head_dim; ++i) y[i] = exact(x[i]);
  std::fill_n(log_scale, rows, 0.0);
}

void ElementwiseMap::exact_gradient(double* dx, const double* dy, const double* x, std::int64_t rows,
                                    std::int64_t head_dim) const {
  for (std::int64_t i = 0; i < rows * head_dim; ++i) dx[i] = dy[i] * exact_slope(x[i]);
}

}  // namespace linnet
