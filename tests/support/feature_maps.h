#pragma once

#include <algorithm>

#include "linnet/feature_map.h"

namespace linnet {

/// Twice the built-in relu.
class DoubledRelu : public FeatureMap {
 public:
  std::string name() const override { return "doubled-relu"; }
  void forward(View<float> y, View<const float> x, const TileContext&) const override {
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t i = 0; i < x.extent(1); ++i) y(r, i) = 2 * std::max(x(r, i), 0.0f);
  }
  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float>,
                const TileContext&) const override {
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t i = 0; i < x.extent(1); ++i) dx(r, i) = x(r, i) > 0 ? 2 * dy(r, i) : 0;
  }
};

}  // namespace linnet
