#include "model/cost.h"

#include "model/config.h"

namespace linnet {
namespace {

double features(const ModelConfig& config) {
  const std::int64_t head_dim = config.width / config.heads;
  return static_cast<double>(feature_map_of(config)->features(head_dim));
}

double dense(const ModelConfig& config) {
  const double width = static_cast<double>(config.width), hidden = static_cast<double>(config.feed_forward);
  const double outputs =
      static_cast<double>(config.head == "logistics" ? 3 * config.mixtures : config.vocabulary);
  return 2 *
         (static_cast<double>(config.layers) * (4 * width * width + 2 * width * hidden) + width * outputs);
}

}  // namespace

TokenCost generation_cost(const ModelConfig& config, double visible) {
  const double width = static_cast<double>(config.width), layers = static_cast<double>(config.layers);
  const double per_layer = config.family == "softmax" ? 4 * width * visible : 4 * width * features(config);
  return {dense(config), layers * per_layer};
}

double training_flops(const ModelConfig& config) {
  const double width = static_cast<double>(config.width), layers = static_cast<double>(config.layers);
  const double length = static_cast<double>(config.length);
  const double visible = config.masked() ? length : (length + 1) / 2, rank = static_cast<double>(config.rank);
  const double per_layer = config.family == "softmax"     ? 14 * width * visible
                           : config.family == "linformer" ? 26 * width * rank
                                                          : 14 * width * features(config);
  return 3 * dense(config) + layers * per_layer;
}

}  // namespace linnet
