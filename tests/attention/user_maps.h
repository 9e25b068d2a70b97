#pragma once

#include <cmath>
#include <string>

#include "linnet/feature_map.h"

namespace linnet::test {

/// Two features a number, exp(±x/2), made of the exported mathematics alone.
class TwoSided final : public FeatureMap {
 public:
  std::string name() const override { return "two-sided"; }
  std::int64_t features(std::int64_t head_dim) const override { return 2 * head_dim; }

  void forward(View<float> y, View<const float> x, const TileContext&) const override {
    for (std::int64_t r = 0; r < x.extent(0); ++r) {
      const std::int64_t width = x.extent(1);
      for (std::int64_t c = 0; c < width; ++c) {
        y(r, c) = x(r, c) / 2;
        y(r, c + width) = -x(r, c) / 2;
      }
      tile_exp(y.at(r), y.at(r), 2 * width);
    }
  }

  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                const TileContext&) const override {
    const std::int64_t width = x.extent(1);
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t c = 0; c < width; ++c)
        dx(r, c) = (dy(r, c) * y(r, c) - dy(r, c + width) * y(r, c + width)) / 2;
  }
};

/// Notes where its tiles come from, by adding the position to the features.
class Positional final : public FeatureMap {
 public:
  std::string name() const override { return "positional"; }

  void forward(View<float> y, View<const float> x, const TileContext& context) const override {
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t c = 0; c < x.extent(1); ++c)
        y(r, c) = std::abs(x(r, c)) + 0.1f * float(context.position + r) + float(context.head) +
                  float(context.layer) + (context.query ? 0.5f : 0.0f);
  }

  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float>,
                const TileContext&) const override {
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t c = 0; c < x.extent(1); ++c) dx(r, c) = x(r, c) > 0 ? dy(r, c) : -dy(r, c);
  }
};

}  // namespace linnet::test
