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
  RandomMapOf(RandomMap map, RandomDraws draws) : draws_(std::move(draws)), projection_(map, draws_) {}

  std::string name() const final { return info().name; }

  std::int64_t features(std::int64_t head_dim) const final {
    if (head_dim != draws_.head_dim)
      fail<UsageError>(info().name.c_str(), "expected the head size {} of its directions, got {}",
                       draws_.head_dim, head_dim);
    return projection_.features;
  }

  void backward(View<float> dx, View<const float> dy, View<const float> x, View<const float> y,
                const TileContext& context) const final {
    random_features_backward(context.context, projection_, dx, dy, x, y);
  }

  FeatureMapTraits traits() const final {
    return {
        .non_negative = info().non_negative, .log_scaled = is_log_scaled(projection_.map), .row_alone = true};
  }

  void exact_forward(View<double> y, std::span<double> log_scale, View<const double> x,
                     const TileContext&) const final {
    exact_random_features(projection_.map, draws_, y, log_scale, x);
  }

  void exact_backward(View<double> dx, View<const double> dy, View<const double> x,
                      const TileContext&) const final {
    exact_random_gradient(projection_.map, draws_, dx, dy, x);
  }

 protected:
  const FeatureMapInfo& info() const { return info_of(projection_.map); }

  RandomDraws draws_;
  RandomProjection projection_;
};

class PlainRandomMap final : public RandomMapOf<FeatureMap> {
 public:
  using RandomMapOf::RandomMapOf;

  void forward(View<float> y, View<const float> x, const TileContext& context) const override {
    random_features(context.context, projection_, y, nullptr, x);
  }
};

class LogScaledRandomMap final : public RandomMapOf<LogScaledMap> {
 public:
  using RandomMapOf::RandomMapOf;

  void forward_scaled(View<float> y, std::span<double> log_scale, View<const float> x,
                      const TileContext& context) const override {
    random_features(context.context, projection_, y, log_scale.data(), x);
  }
};

}  // namespace

std::shared_ptr<const FeatureMap> random_feature_map(const std::string& map, RandomDraws draws) {
  const RandomMap kind = find_random_map(map);
  check_draws(kind, draws);
  if (is_log_scaled(kind)) return std::make_shared<LogScaledRandomMap>(kind, std::move(draws));
  return std::make_shared<PlainRandomMap>(kind, std::move(draws));
}

std::shared_ptr<const FeatureMap> random_feature_map(const std::string& map, std::int64_t head_dim,
                                                     const RandomFeatureOptions& options) {
  return random_feature_map(map, draw_random_features(map, head_dim, options));
}

}  // namespace linnet
