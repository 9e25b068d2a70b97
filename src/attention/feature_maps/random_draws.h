#pragma once

#include <string>

#include "linnet/feature_map.h"

namespace linnet {

/// The random maps, in the order of their table.
enum class RandomMap { favor, trig, sincos, hyperbolic, relu, gelu, sigmoid, tanh, abs, cos, exp };

/// The map of that name; UsageError, naming the nearest, where it is none.
RandomMap find_random_map(const std::string& name);

const FeatureMapInfo& info_of(RandomMap map);

/// Features a direction: 2 where every direction serves twice, as (cos, sin) or exp of either sign.
constexpr std::int64_t features_a_direction(RandomMap map) {
  return map == RandomMap::sincos || map == RandomMap::hyperbolic ? 2 : 1;
}

/// Whether the map's rows have a log-scale.
constexpr bool is_log_scaled(RandomMap map) { return map <= RandomMap::hyperbolic || map == RandomMap::exp; }

/// Fails with a sentence where `draws` do not fit together or are not those of `map`.
void check_draws(RandomMap map, const RandomDraws& draws);

}  // namespace linnet
