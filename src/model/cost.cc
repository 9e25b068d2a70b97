#include "model/cost.h"

#include "attention/cost.h"
#include "model/network.h"

namespace linnet {
namespace {

double dense(const ModelConfig& config) {
  const double width = static_cast<double>(config.width), hidden = static_cast<double>(config.feed_forward);
  const double outputs = static_cast<double>(head_outputs(config));
  return 2 *
         (static_cast<double>(config.layers) * (4 * width * width + 2 * width * hidden) + width * outputs);
}

/// Of all layers and heads.
AttentionCost attention_cost(const ModelConfig& config, const AttentionOptions& options, std::int64_t length,
                             double pairs) {
  const std::int64_t head_dim = config.width / config.heads;
  AttentionCost cost =
      least_cost(options, {length, head_dim, head_dim, config.attention.linformer.rank}, pairs);
  cost.forward *= static_cast<double>(config.layers * config.heads);
  cost.training *= static_cast<double>(config.layers * config.heads);
  return cost;
}

}  // namespace

TokenCost generation_cost(const ModelConfig& config, double visible) {
  const AttentionOptions options = attention_of(config);
  return {dense(config), attention_cost(config, options, 1, step_keys(options, visible)).forward};
}

double training_flops(const ModelConfig& config) {
  const AttentionOptions options = attention_of(config);
  const double pairs =
      multiplied_pairs(options, config.masked() ? Mask::full() : Mask::causal(), config.length);
  return 3 * dense(config) +
         attention_cost(config, options, config.length, pairs).training / static_cast<double>(config.length);
}

}  // namespace linnet
