#include <cmath>
#include <vector>

#include "linnet/feature_map.h"

namespace linnet {

void LogScaledMap::forward(View<float> y, View<const float> x, const TileContext& context) const {
  const std::int64_t rows = y.extent(0), features = y.extent(1);
  std::vector<double> log_scale(static_cast<std::size_t>(rows));
  forward_scaled(y, log_scale, x, context);
  for (std::int64_t r = 0; r < rows; ++r) {
    const double scale = std::exp(log_scale[static_cast<std::size_t>(r)]);
    for (std::int64_t f = 0; f < features; ++f) y(r, f) = static_cast<float>(scale * y(r, f));
  }
}

}  // namespace linnet
