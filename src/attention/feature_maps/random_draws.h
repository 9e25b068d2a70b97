#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "attention/feature_maps/hadamard.h"
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

/// Signs of `directions` Hadamard directions: three diagonals a block.
constexpr std::int64_t number_of_signs(std::int64_t directions, std::int64_t head_dim) {
  return kDiagonals * ((directions + head_dim - 1) / head_dim * head_dim);
}

/// Whether products with Hadamard directions of that many numbers are transforms in the kernels; others are
/// faster as dense ones.
bool has_fast_transform(std::int64_t head_dim);

/// The directions that are drawn for heads of that size: those wanted, or what `automatic` stands for.
Directions directions_drawn(Directions wanted, std::int64_t head_dim);

/// Directions of such a draw, its phases and numbers apart. Throws UsageError for invalid options.
std::int64_t directions_of(RandomMap map, std::int64_t head_dim, const RandomFeatureOptions& options);

/// Draws that are made when they are first asked for. A model's file says what they have to be: its shapes
/// are compared before any time is spent on drawing.
class LateDraws {
 public:
  /// Throws UsageError for invalid options.
  LateDraws(const std::string& map, std::int64_t head_dim, const RandomFeatureOptions& options);

  RandomMap map() const { return map_; }
  std::int64_t head_dim() const { return head_dim_; }
  std::int64_t directions() const { return directions_; }
  bool are_hadamard() const {
    return directions_drawn(options_.directions, head_dim_) == Directions::hadamard;
  }

  /// From any thread.
  const RandomDraws& get() const;

 private:
  RandomMap map_;
  std::int64_t head_dim_;
  RandomFeatureOptions options_;
  std::int64_t directions_;
  mutable std::once_flag once_;
  mutable RandomDraws draws_;
};

/// The random map of such draws.
std::shared_ptr<const FeatureMap> random_feature_map(std::shared_ptr<const LateDraws> draws);

/// FLOPs of the products of a row with the directions of a random map: 2 E for each, or for Hadamard ones the
/// additions of their transforms where these are fewer. 0 for other maps.
double direction_flops(const FeatureMap& map);

/// Makes the directions of signs and lengths. Fails with a sentence where `draws` do not fit together or are
/// not those of `map`.
void complete_draws(RandomMap map, RandomDraws& draws);

}  // namespace linnet
