#include "layers/feature_draws.h"

#include <algorithm>

namespace linnet {
namespace {

Initialiser numbers(std::vector<float> values) {
  return [values = std::move(values)](std::int64_t i, double) { return values[static_cast<std::size_t>(i)]; };
}

}  // namespace

FeatureDraws::FeatureDraws(ParameterTable& table, const std::string& name, std::string map,
                           std::int64_t head_dim, const RandomFeatureOptions& options)
    : map_(std::move(map)), head_dim_(head_dim), options_(options) {
  RandomDraws draws = draw_random_features(map_, head_dim, options);
  const auto count = static_cast<std::int64_t>(draws.directions.size()) / head_dim;
  has_phases_ = !draws.phases.empty();
  directions_ =
      table.add_untrained(name + ".directions", {count, head_dim}, numbers(std::move(draws.directions)));
  if (has_phases_) phases_ = table.add_untrained(name + ".phases", {count}, numbers(std::move(draws.phases)));
}

std::shared_ptr<const FeatureMap> FeatureDraws::pack(const ParameterValues& parameters) {
  const auto values = [&](const ParameterPlace& place) {
    const View<const float> view = parameters.of(place);
    return std::vector<float>(view.data(), view.data() + view.size());
  };
  RandomDraws draws{head_dim_, values(directions_), has_phases_ ? values(phases_) : std::vector<float>()};
  if (draws.directions == last_.directions && draws.phases == last_.phases) return nullptr;
  last_ = draws;
  return random_feature_map(map_, std::move(draws));
}

void FeatureDraws::redraw(std::span<float> parameters, std::uint64_t draw) const {
  RandomFeatureOptions options = options_;
  options.draw = draw;
  const RandomDraws draws = draw_random_features(map_, head_dim_, options);
  std::ranges::copy(draws.directions, directions_.of(parameters).data());
  if (has_phases_) std::ranges::copy(draws.phases, phases_.of(parameters).data());
}

}  // namespace linnet
