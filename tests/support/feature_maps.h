#pragma once

#include <algorithm>
#include <limits>
#include <stdexcept>

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

/// Throws in one layer for the tile that begins at one position, or gives features beyond all floats there.
class FailingMap final : public DoubledRelu {
 public:
  explicit FailingMap(int layer) : layer_(layer) {}
  std::string name() const override { return "failing"; }
  void forward(View<float> y, View<const float> x, const TileContext& context) const override {
    if (context.layer == layer_ && context.position == fails_at)
      throw std::runtime_error("[map] expected luck");
    DoubledRelu::forward(y, x, context);
    if (context.layer == layer_ && context.position == overflows_at)
      for (std::int64_t i = 0; i < y.extent(1); ++i) y(0, i) = std::numeric_limits<float>::infinity();
  }

  std::int64_t fails_at = -1, overflows_at = -1;

 private:
  int layer_;
};

}  // namespace linnet
