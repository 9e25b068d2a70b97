#include "linnet/feature_map.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace linnet {
namespace {

/// Dense f32 copies of the rows and what the map's own f32 tiles make of them.
struct InFloats {
  InFloats(const FeatureMap& map, View<const double> rows, const TileContext& context)
      : x(Tensor::of<float>({rows.extent(0), rows.extent(1)})),
        y(Tensor::of<float>({rows.extent(0), map.features(rows.extent(1))})),
        log_scale(static_cast<std::size_t>(rows.extent(0))) {
    copy<double>(x.view<float>(), rows);
    map.forward_scaled(y.view<float>(), log_scale, x.view<float>(), context);
  }

  template <class From, class To>
  static void copy(View<To> to, View<const From> from) {
    for (std::int64_t r = 0; r < to.extent(0); ++r)
      std::transform(from.at(r), from.at(r) + to.extent(1), to.at(r),
                     [](From value) { return static_cast<To>(value); });
  }

  Tensor x, y;
  std::vector<double> log_scale;
};

}  // namespace

void FeatureMap::forward_scaled(View<float> y, std::span<double> log_scale, View<const float> x,
                                const TileContext& context) const {
  forward(y, x, context);
  std::ranges::fill(log_scale, 0.0);
}

void FeatureMap::exact_forward(View<double> y, std::span<double> log_scale, View<const double> x,
                               const TileContext& context) const {
  const InFloats narrow(*this, x, context);
  InFloats::copy(y, narrow.y.view<float>());
  std::ranges::copy(narrow.log_scale, log_scale.begin());
}

void FeatureMap::exact_backward(View<double> dx, View<const double> dy, View<const double> x,
                                const TileContext& context) const {
  const InFloats narrow(*this, x, context);
  Tensor dx32 = Tensor::of<float>(narrow.x.shape()), dy32 = Tensor::of<float>(narrow.y.shape());
  InFloats::copy(dy32.view<float>(), dy);
  backward(dx32.view<float>(), dy32.view<float>(), narrow.x.view<float>(), narrow.y.view<float>(), context);
  InFloats::copy(dx, std::as_const(dx32).view<float>());
}

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
