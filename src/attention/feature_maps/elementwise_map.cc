#include "attention/feature_maps/elementwise_map.h"

#include <algorithm>
#include <vector>

namespace linnet {

namespace {

void features_of(const FeatureMap& map, View<float> y, double* log_scale, View<const float> x,
                 const TileContext& context) {
  const auto rows = static_cast<std::size_t>(y.extent(0));
  if (const auto* scaled = dynamic_cast<const LogScaledMap*>(&map))
    return scaled->forward_scaled(y, {log_scale, rows}, x, context);
  std::fill_n(log_scale, rows, 0.0);
  map.forward(y, x, context);
}

}  // namespace

void reference_features(const FeatureMap& map, double* y, double* log_scale, const double* x,
                        std::int64_t rows, std::int64_t head_dim, const TileContext& context) {
  if (const auto* own = dynamic_cast<const ElementwiseMap*>(&map)) {
    for (std::int64_t i = 0; i < rows * head_dim; ++i) y[i] = own->exact(x[i]);
    std::fill_n(log_scale, rows, 0.0);
    return;
  }
  const std::int64_t features = map.features(head_dim);
  const std::vector<float> x32(x, x + rows * head_dim);
  std::vector<float> y32(rows * features);
  features_of(map, {y32.data(), {rows, features}}, log_scale, {x32.data(), {rows, head_dim}}, context);
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
  std::vector<double> log_scale(rows);
  features_of(map, {y32.data(), {rows, features}}, log_scale.data(), {x32.data(), {rows, head_dim}}, context);
  map.backward({dx32.data(), {rows, head_dim}}, {dy32.data(), {rows, features}},
               {x32.data(), {rows, head_dim}}, {y32.data(), {rows, features}}, context);
  std::copy(dx32.begin(), dx32.end(), dx);
}

}  // namespace linnet
