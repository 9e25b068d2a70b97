#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "attention/feature_maps/random_draws.h"
#include "attention/feature_maps/random_exact.h"
#include "attention/feature_maps/random_kernels.h"
#include "base/fail.h"

namespace linnet {
namespace {

/// What the maps with and without log-scales share; Base is FeatureMap or LogScaledMap.
template <class Base>
class RandomMapOf : public Base {
 public:
  RandomMapOf(RandomMap map, RandomDraws draws)
      : map_(map),
        head_dim_(draws.head_dim),
        directions_(std::ssize(draws.directions) / draws.head_dim),
        hadamard_(!draws.signs.empty()),
        numbers_(std::in_place, map, std::move(draws)) {}
  explicit RandomMapOf(std::shared_ptr<const LateDraws> late)
      : map_(late->map()),
        head_dim_(late->head_dim()),
        directions_(late->directions()),
        hadamard_(late->are_hadamard()),
        late_(std::move(late)) {}

  std::string name() const final { return info().name; }

  double flops_of_directions() const {
    const auto e = static_cast<double>(head_dim_), dense = 2 * e * static_cast<double>(directions_);
    if (!hadamard_) return dense;
    const std::int64_t blocks = (directions_ + head_dim_ - 1) / head_dim_;
    return std::min(dense, static_cast<double>(blocks) * kDiagonals * e * std::log2(e));
  }

  std::int64_t features(std::int64_t head_dim) const final {
    if (head_dim != head_dim_)
      fail<UsageError>(info().name.c_str(), "expected the head size {} of its directions, got {}", head_dim_,
                       head_dim);
    return directions_ * features_a_direction(map_);
  }

  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                const TileContext& context) const final {
    random_features_backward(context.context, numbers().projection, dx, dy, x, y);
  }

  FeatureMapTraits traits() const final {
    return {.non_negative = info().non_negative, .log_scaled = is_log_scaled(map_), .row_alone = true};
  }

  void exact_forward(View<double> y, std::span<double> log_scale, View<const double> x,
                     const TileContext&) const final {
    exact_random_features(map_, numbers().draws, y, log_scale, x);
  }

  void exact_backward(View<double> dx, View<const double> dy, View<const double> x,
                      const TileContext&) const final {
    exact_random_gradient(map_, numbers().draws, dx, dy, x);
  }

 protected:
  struct Numbers {
    Numbers(RandomMap map, RandomDraws of_map) : draws(std::move(of_map)), projection(map, draws) {}
    RandomDraws draws;
    RandomProjection projection;
  };

  const FeatureMapInfo& info() const { return info_of(map_); }

  const Numbers& numbers() const {
    if (late_ != nullptr) std::call_once(once_, [&] { numbers_.emplace(map_, late_->get()); });
    return *numbers_;
  }

 private:
  RandomMap map_;
  std::int64_t head_dim_, directions_;
  bool hadamard_;
  std::shared_ptr<const LateDraws> late_;  // or null where the numbers are there from the beginning
  mutable std::once_flag once_;
  mutable std::optional<Numbers> numbers_;
};

class PlainRandomMap final : public RandomMapOf<FeatureMap> {
 public:
  using RandomMapOf::RandomMapOf;

  void forward(View<float> y, View<const float> x, const TileContext& context) const override {
    random_features(context.context, numbers().projection, y, nullptr, x);
  }
};

class LogScaledRandomMap final : public RandomMapOf<LogScaledMap> {
 public:
  using RandomMapOf::RandomMapOf;

  void forward_scaled(View<float> y, std::span<double> log_scale, View<const float> x,
                      const TileContext& context) const override {
    random_features(context.context, numbers().projection, y, log_scale.data(), x);
  }
};

}  // namespace

double direction_flops(const FeatureMap& map) {
  if (const auto* plain = dynamic_cast<const PlainRandomMap*>(&map)) return plain->flops_of_directions();
  if (const auto* scaled = dynamic_cast<const LogScaledRandomMap*>(&map))
    return scaled->flops_of_directions();
  return 0;
}

std::shared_ptr<const FeatureMap> random_feature_map(const std::string& map, RandomDraws draws) {
  const RandomMap kind = find_random_map(map);
  complete_draws(kind, draws);
  if (is_log_scaled(kind)) return std::make_shared<LogScaledRandomMap>(kind, std::move(draws));
  return std::make_shared<PlainRandomMap>(kind, std::move(draws));
}

std::shared_ptr<const FeatureMap> random_feature_map(std::shared_ptr<const LateDraws> draws) {
  if (is_log_scaled(draws->map())) return std::make_shared<LogScaledRandomMap>(std::move(draws));
  return std::make_shared<PlainRandomMap>(std::move(draws));
}

std::shared_ptr<const FeatureMap> random_feature_map(const std::string& map, std::int64_t head_dim,
                                                     const RandomFeatureOptions& options) {
  return random_feature_map(map, draw_random_features(map, head_dim, options));
}

}  // namespace linnet
