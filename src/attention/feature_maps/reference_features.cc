#include "attention/feature_maps/reference_features.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace linnet {

void reference_features(const FeatureMap& map, double* y, double* log_scale, const double* x,
                        std::int64_t rows, std::int64_t head_dim, const TileContext& context) {
  const std::int64_t features = map.features(head_dim);
  std::vector<double> scale(static_cast<std::size_t>(rows));
  map.exact_forward({y, {rows, features}}, scale, {x, {rows, head_dim}}, context);
  if (log_scale != nullptr) {
    std::ranges::copy(scale, log_scale);
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t f = 0; f < features; ++f)
      y[r * features + f] *= std::exp(scale[static_cast<std::size_t>(r)]);
}

void reference_features_backward(const FeatureMap& map, double* dx, const double* dy, const double* x,
                                 std::int64_t rows, std::int64_t head_dim, const TileContext& context) {
  map.exact_backward({dx, {rows, head_dim}}, {dy, {rows, map.features(head_dim)}}, {x, {rows, head_dim}},
                     context);
}

}  // namespace linnet
