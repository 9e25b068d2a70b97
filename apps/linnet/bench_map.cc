#include <algorithm>

#include "bench_attention.h"

namespace linnet {
namespace {

/// φ(x) = max(x, 0) + exp(min(x, 0)): what elu is, as somebody outside of the library would write it.
class UserMap final : public FeatureMap {
 public:
  std::string name() const override { return "user"; }

  void forward(View<float> y, View<const float> x, const TileContext&) const override {
    const std::int64_t rows = x.extent(0), columns = x.extent(1);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) y(i, j) = std::min(x(i, j), 0.0f);
      if (!y.dense()) tile_exp(y.at(i), y.at(i), columns);
    }
    if (y.dense()) tile_exp(y.data(), y.data(), rows * columns);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) y(i, j) += std::max(x(i, j), 0.0f);
  }

  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                const TileContext&) const override {
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < x.extent(1); ++j) dx(i, j) = dy(i, j) * std::min(x(i, j) > 0 ? 1.0f : y(i, j), 1.0f);
  }
};

}  // namespace

std::shared_ptr<const FeatureMap> bench_feature_map(const std::string& name) {
  if (name == "user") return std::make_shared<UserMap>();
  return find_feature_map(name);
}

}  // namespace linnet
