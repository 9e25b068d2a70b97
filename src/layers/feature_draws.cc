#include "layers/feature_draws.h"

#include <algorithm>

#include "attention/feature_maps/random_draws.h"

namespace linnet {

FeatureDraws::FeatureDraws(ParameterTable& table, const std::string& name, std::string map,
                           std::int64_t head_dim, const RandomFeatureOptions& options)
    : map_(std::move(map)), head_dim_(head_dim), options_(options) {
  const auto first = std::make_shared<const LateDraws>(map_, head_dim, options);
  const auto add = [&](const char* of, Shape shape, std::vector<float> RandomDraws::*numbers,
                       NumberRange range = NumberRange::any) {
    const Initialiser initial = [first, numbers](std::int64_t i, double) {
      return (first->get().*numbers)[static_cast<std::size_t>(i)];
    };
    parts_.push_back({table.add_untrained(name + of, std::move(shape), initial, range), numbers});
  };
  const std::int64_t count = first->directions();
  if (directions_drawn(options.directions, head_dim) == Directions::hadamard) {
    add(".signs", {number_of_signs(count, head_dim) / head_dim, head_dim}, &RandomDraws::signs,
        NumberRange::sign);
    add(".lengths", {count}, &RandomDraws::lengths, NumberRange::not_negative);
  } else {
    add(".directions", {count, head_dim}, &RandomDraws::directions);
  }
  if (first->map() == RandomMap::trig) add(".phases", {count}, &RandomDraws::phases);
}

std::shared_ptr<const FeatureMap> FeatureDraws::pack(const ParameterValues& parameters) {
  RandomDraws draws{.head_dim = head_dim_};
  for (const auto& [place, numbers] : parts_) {
    const View<const float> view = parameters.of(place);
    (draws.*numbers).assign(view.data(), view.data() + view.size());
  }
  if (std::ranges::all_of(parts_,
                          [&](const Part& part) { return draws.*part.numbers == last_.*part.numbers; }))
    return nullptr;
  last_ = draws;
  return random_feature_map(map_, std::move(draws));
}

void FeatureDraws::redraw(std::span<float> parameters, std::uint64_t draw) const {
  RandomFeatureOptions options = options_;
  options.draw = draw;
  const RandomDraws draws = draw_random_features(map_, head_dim_, options);
  for (const auto& [place, numbers] : parts_) std::ranges::copy(draws.*numbers, place.of(parameters).data());
}

}  // namespace linnet
