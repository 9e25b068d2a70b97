#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "linnet/feature_map.h"

namespace linnet::test {

/// φ_f(x) = exp(w_f·x − ‖x‖²/2 + louder + 0.01 position), F = E + 3, computed in double precision; with
/// `signs`, every other feature of a key is subtracted, so that denominators can vanish.
class LoudMap final : public LogScaledMap {
 public:
  explicit LoudMap(bool signs = false, double louder = 0)
      : weights_(80 * 80), signs_(signs), louder_(louder) {
    const Random random(77, Draw::test);
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] = 2 * random.uniform(i) - 1;
  }

  std::string name() const override { return "loud"; }
  std::int64_t features(std::int64_t head_dim) const override { return head_dim + 3; }
  FeatureMapTraits traits() const override { return {.non_negative = !signs_, .log_scaled = true}; }

  void forward_scaled(View<float> y, std::span<double> log_scale, View<const float> x,
                      const TileContext& context) const override {
    std::vector<double> exponents(static_cast<std::size_t>(y.extent(1)));
    for (std::int64_t r = 0; r < x.extent(0); ++r) {
      double square = 0;
      for (std::int64_t e = 0; e < x.extent(1); ++e) square += double(x(r, e)) * x(r, e);
      for (std::int64_t f = 0; f < y.extent(1); ++f) {
        exponents[f] = 0;
        for (std::int64_t e = 0; e < x.extent(1); ++e) exponents[f] += weight(f, e) * x(r, e);
      }
      const double largest = *std::ranges::max_element(exponents);
      for (std::int64_t f = 0; f < y.extent(1); ++f)
        y(r, f) = static_cast<float>(sign(f, context) * std::exp(std::max(-80.0, exponents[f] - largest)));
      log_scale[r] = largest - square / 2 + louder_ + 0.01 * static_cast<double>(context.position + r);
    }
  }

  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                const TileContext&) const override {
    for (std::int64_t r = 0; r < x.extent(0); ++r)
      for (std::int64_t e = 0; e < x.extent(1); ++e) {
        double sum = 0;
        for (std::int64_t f = 0; f < y.extent(1); ++f)
          sum += double(dy(r, f)) * y(r, f) * (weight(f, e) - x(r, e));
        dx(r, e) = static_cast<float>(sum);
      }
  }

 private:
  double sign(std::int64_t f, const TileContext& context) const {
    return signs_ && f % 2 == 1 && !context.query ? -1 : 1;
  }
  double weight(std::int64_t f, std::int64_t e) const {
    return weights_[static_cast<std::size_t>(f * 80 + e)];
  }

  std::vector<double> weights_;
  bool signs_;
  double louder_;
};

}  // namespace linnet::test
