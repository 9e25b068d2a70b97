#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "attention/family.h"
#include "linnet/model.h"
#include "model/access.h"
#include "model/network.h"
#include "support/parameters.h"

namespace linnet {

/// Two layers of an odd little model, small enough for differences of every parameter.
inline ModelConfig tiny_config() {
  ModelConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 6;
  config.feed_forward = 7;
  config.length = 6;
  config.vocabulary = 5;
  config.mixtures = 2;
  return config;
}

/// A model that is still quick in double precision at a thousand tokens.
inline ModelConfig small_config() {
  ModelConfig config = tiny_config();
  config.heads = 3;
  config.width = 27;
  config.feed_forward = 40;
  config.length = 1000;
  config.vocabulary = 11;
  config.mixtures = 3;
  return config;
}

/// With SwiGLU, normalisation by the root mean square, rotary positions and another family in every layer, as
/// "linear,local" lists them.
inline ModelConfig with_other_blocks(ModelConfig config, const std::string& families) {
  config.layers = std::ranges::count(families, ',') + 1;
  config.width = 4 * config.heads;
  config.activation = Activation::swiglu;
  config.norm_kind = NormKind::rms;
  config.positions = Positions::rotary;
  config.attention.layers = families;
  config.attention.local.window = 3;
  return config;
}

inline std::string describe(const ModelConfig& config) {
  return std::string(name_of(config.norm)) + "-norm (" + name_of(config.norm_kind) + "), " +
         name_of(config.positions) + " positions, " + name_of(config.head) + " head" +
         (config.tied_output ? " (tied)" : "") + ", " + families_text(config.attention) + " " +
         config.attention.linear.feature_map +
         (config.attention.strided.pattern == SparsePattern::fixed ? " fixed, " : ", ") +
         name_of(config.activation);
}

/// Random values, with positive deviations as `Columns` has them.
inline Tensor values_with_deviations(const Network& network, std::uint64_t seed) {
  Tensor values = random_values(network.table(), seed);
  for (const auto& row : network.table().rows())
    if (row.name.ends_with("deviation"))
      for (std::int64_t i = 0; i < row.count; ++i) {
        float& value = row.place.of(values.span<float>()).data()[i];
        value = 1 + std::abs(value);
      }
  return values;
}

/// A model of which no parameter is 0 or 1.
inline std::shared_ptr<const Model> random_model(const ModelConfig& config, std::uint64_t seed) {
  return make_model(config, random_values(Network(config).table(), seed));
}

inline reference::Parameters by_name(const Model& model) {
  return by_name(network_of(model).table(), values_of(model).span<float>());
}

/// Inputs [batch · length]: the first input, then random tokens.
inline std::vector<std::int32_t> random_inputs(const ModelConfig& config, std::int64_t batch,
                                               std::int64_t length, std::uint64_t seed) {
  std::vector<std::int32_t> ids = random_tokens(batch * length, config.vocabulary, seed);
  for (std::int64_t b = 0; b < batch; ++b)
    ids[static_cast<std::size_t>(b * length)] =
        config.first_input(config.classes > 0 ? b % config.classes : -1);
  return ids;
}

inline std::int32_t largest(std::span<const float> x) {
  return static_cast<std::int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

}  // namespace linnet
