#include "attention/feature_maps/elementwise_map.h"

#include <algorithm>
#include <vector>

namespace linnet {

void reference_features(const FeatureMap& map, double* y, const double* x, std::int64_t rows,
                        std::int64_t head_dim, const TileContext& context) {
  if (const auto* own = dynamic_cast<const ElementwiseMap*>(&map)) {
    for (std::int64_t i = 0; i < rows * head_dim; ++i) y[i] = own->exact(x[i]);
    return;
  }
  const std::int64_t features = map.features(head_dim);
  const std::vector<float> x32(x, x + rows * head_dim);
  std::vector<float> y32(rows * features);
  map.forward({y32.data(), {rows, features}}, {x32.data(), {rows, head_dim}}, context);
  std::copy(y32.begin(), y32.end(), y);
}

void reference_features_backward(const FeatureMap& map, double* dx, const double* dy, const double* x,
                                 std::int64_t rows, std::int64_t head_dim, const TileContext& context) {
  if (const auto* own = dynamic_cast<const ElementwiseMap*>(&map)) {
    for (std::int64_t i = 0; i < rows * head_dim; ++i) dx[i] = dy[i] * own->exact_slope(x[i]);
    return;
  }
  const std::int64_t features = map.features(head_dim);
  const std::vector<float> x32(x, x + rows * head_dim), dy32(dy, dy + rows * features);
  std::vector<float> y32(rows * features), dx32(rows * head_dim);
  map.forward({y32.data(), {rows, features}}, {x32.data(), {rows, head_dim}}, context);
  map.backward({dx32.data(), {rows, head_dim}}, {dy32.data(), {rows, features}},
               {x32.data(), {rows, head_dim}}, {y32.data(), {rows, features}}, context);
  std::copy(dx32.begin(), dx32.end(), dx);
}

}  // namespace linnet
