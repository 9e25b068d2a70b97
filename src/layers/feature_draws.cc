#include "layers/feature_draws.h"

#include <algorithm>

#include "attention/feature_maps/random_draws.h"

namespace linnet {

FeatureDraws::FeatureDraws(ParameterTable& table, const std::string& name, std::string map,
                           std::int64_t head_dim, const RandomFeatureOptions& options)
    : map_(std::move(map)), head_dim_(head_dim), options_(options) {
  const auto first = std::make_shared<const LateDraws>(map_, head_dim, options);
  has_phases_ = first->map() == RandomMap::trig;
  const auto numbers = [&](std::vector<float> RandomDraws::*part) -> Initialiser {
    return
        [first, part](std::int64_t i, double) { return (first->get().*part)[static_cast<std::size_t>(i)]; };
  };
  directions_ = table.add_untrained(name + ".directions", {first->directions(), head_dim},
                                    numbers(&RandomDraws::directions));
  if (has_phases_)
    phases_ = table.add_untrained(name + ".phases", {first->directions()}, numbers(&RandomDraws::phases));
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
