#include "attention/family.h"

#include "attention/feature_maps/random_draws.h"
#include "attention/linear/linear_attention.h"
#include "base/fail.h"

namespace linnet {
namespace {

void exact_forward(const AttentionOptions& options, View<double> out, const ReferenceInputs& inputs) {
  linear_reference_forward(options, out, inputs);
}

void exact_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                    View<const double> grad_out, const ReferenceInputs& inputs) {
  linear_reference_backward(options, gradients, grad_out, inputs);
}

AttentionCost cost_of(const AttentionOptions& options, const CostSizes& sizes, double) {
  const double features = static_cast<double>(options.linear.feature_map->features(sizes.head_dim));
  const double products = static_cast<double>(sizes.length) * features * static_cast<double>(sizes.value_dim);
  // Of queries and keys, and in training of their gradients.
  const double directions =
      2 * static_cast<double>(sizes.length) * direction_flops(*options.linear.feature_map);
  return {4 * products + directions, 14 * products + 2 * directions};
}

void add_keys(Settings& settings, AttentionConfig& config) {
  constexpr std::int64_t most_features = 1 << 16;
  LinearConfig& linear = config.linear;
  settings.add("attention.feature_map", linear.feature_map, "feature map of the linear family");
  settings.add("attention.alpha", linear.alpha, "α of the elu feature map", 1e-6, 1);
  settings.add("attention.features", linear.features,
               "number of features of a random map; 0 is E ln E, rounded up to a multiple of 16", 0,
               most_features);
  settings.add("attention.directions", linear.directions, "how a random map's directions are drawn",
               {name_of(Directions::automatic), name_of(Directions::orthogonal),
                name_of(Directions::independent), name_of(Directions::hadamard)});
  settings.add("attention.redraw", linear.redraw,
               "training steps between new draws of random features; 0 keeps the first draw", 0, 1 << 30);
  settings.add("attention.decay", linear.decay,
               "linear: decay γ per head, S = γ S + φ(k) vᵀ: none, fixed, or learned from the same initial "
               "values",
               {name_of(Decay::none), name_of(Decay::fixed), name_of(Decay::learned)});
  settings.add("attention.shortest_memory", linear.shortest_memory,
               "decay: memory of the first head in tokens, 1/(1 − γ)", 1.01, 1e7);
  settings.add("attention.longest_memory", linear.longest_memory,
               "decay: memory of the last head; those between are spaced geometrically", 1.01, 1e7);
}

bool has_log_scales(const LinearConfig& linear) {
  return is_random_feature_map(linear.feature_map) && is_log_scaled(find_random_map(linear.feature_map));
}

bool uses(const AttentionConfig& config, std::string_view key) {
  const LinearConfig& linear = config.linear;
  const bool random = is_random_feature_map(linear.feature_map);
  if (key == "attention.alpha") return linear.feature_map == "elu";
  if (key == "attention.features" || key == "attention.directions" || key == "attention.redraw" ||
      key == "attention.seed")
    return random;
  if (key == "attention.shortest_memory" || key == "attention.longest_memory")
    return linear.decay != Decay::none;
  if (key == "attention.epsilon") return config.normalise == Normalise::sum && !has_log_scales(linear);
  return key == "attention.feature_map" || key == "attention.decay" || key == "attention.normalise";
}

/// The configured map. A random one is drawn when it is first used, since layers that have the draws among
/// their parameters replace it.
std::shared_ptr<const FeatureMap> map_of(const LinearConfig& linear, std::int64_t head_dim,
                                         const RandomFeatureOptions& random) {
  if (is_random_feature_map(linear.feature_map))
    return random_feature_map(std::make_shared<const LateDraws>(linear.feature_map, head_dim, random));
  return find_feature_map(linear.feature_map, {.alpha = static_cast<float>(linear.alpha)});
}

void configure(AttentionOptions& options, const AttentionConfig& config, const LayerConfig& layer) {
  options.linear.feature_map = layer.feature_map != nullptr
                                   ? layer.feature_map
                                   : map_of(config.linear, layer.head_dim, random_features_of(config));
  options.linear.normalise = config.normalise;
  options.linear.epsilon = static_cast<float>(config.epsilon);
  // Where no stream is longer than this, plain sums stay exact enough and the state is half as large.
  constexpr std::int64_t plain_length = 1 << 16;
  options.linear.sums = layer.sequence.bounded && layer.sequence.length <= plain_length
                            ? StateSums::plain
                            : StateSums::compensated;
}

}  // namespace

RandomFeatureOptions random_features_of(const AttentionConfig& config) {
  return {.features = config.linear.features,
          .directions = config.linear.directions,
          .seed = static_cast<std::uint64_t>(config.seed)};
}

const FamilyEntry linear_family = {
    .info = {.family = Family::linear,
             .name = "linear",
             .masks = "every mask; quadratic with boolean masks",
             .recurrent = true,
             .cost = "4 F M, with 4 E for each direction of random maps",
             .training = "14 F M, with 8 E for each direction",
             .state = "F M + F",
             .takes_feature_map = true,
             .takes_decay = true},
    .make = make_linear_attention,
    .reference_forward = exact_forward,
    .reference_backward = exact_backward,
    .multiplied_pairs = no_pairs,
    .least_cost = cost_of,
    .step_keys = all_keys,
    .add_settings = add_keys,
    .uses = uses,
    .configure = configure,
    .fixed_state = true,
};

}  // namespace linnet
