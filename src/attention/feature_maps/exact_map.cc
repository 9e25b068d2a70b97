#include "attention/feature_maps/exact_map.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace linnet {
namespace {

/// What the map's own f32 tiles make of the rows.
struct InFloats {
  InFloats(const FeatureMap& map, const double* rows_of_x, std::int64_t rows, std::int64_t head_dim,
           const TileContext& context)
      : features(map.features(head_dim)),
        x(rows_of_x, rows_of_x + rows * head_dim),
        y(static_cast<std::size_t>(rows * features)),
        log_scale(static_cast<std::size_t>(rows)) {
    const View<float> to(y.data(), {rows, features});
    const View<const float> from(x.data(), {rows, head_dim});
    if (const auto* scaled = dynamic_cast<const LogScaledMap*>(&map))
      scaled->forward_scaled(to, log_scale, from, context);
    else
      map.forward(to, from, context);
  }

  std::int64_t features;
  std::vector<float> x, y;
  std::vector<double> log_scale;
};

}  // namespace

void reference_features(const FeatureMap& map, double* y, double* log_scale, const double* x,
                        std::int64_t rows, std::int64_t head_dim, const TileContext& context) {
  std::vector<double> scale(static_cast<std::size_t>(rows));
  if (const auto* own = dynamic_cast<const ExactMap*>(&map)) {
    own->exact_features(y, scale.data(), x, rows, head_dim);
  } else {
    const InFloats narrow(map, x, rows, head_dim, context);
    std::ranges::copy(narrow.y, y);
    scale = narrow.log_scale;
  }
  if (log_scale != nullptr) {
    std::ranges::copy(scale, log_scale);
    return;
  }
  const std::int64_t features = map.features(head_dim);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t f = 0; f < features; ++f)
      y[r * features + f] *= std::exp(scale[static_cast<std::size_t>(r)]);
}

void reference_features_backward(const FeatureMap& map, double* dx, const double* dy, const double* x,
                                 std::int64_t rows, std::int64_t head_dim, const TileContext& context) {
  if (const auto* own = dynamic_cast<const ExactMap*>(&map)) {
    own->exact_gradient(dx, dy, x, rows, head_dim);
    return;
  }
  const InFloats narrow(map, x, rows, head_dim, context);
  const std::vector<float> dy32(dy, dy + rows * narrow.features);
  std::vector<float> dx32(static_cast<std::size_t>(rows * head_dim));
  map.backward({dx32.data(), {rows, head_dim}}, {dy32.data(), {rows, narrow.features}},
               {narrow.x.data(), {rows, head_dim}}, {narrow.y.data(), {rows, narrow.features}}, context);
  std::ranges::copy(dx32, dx);
}

}  // namespace linnet
