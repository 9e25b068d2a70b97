#include "model/cost.h"

#include <algorithm>

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

/// Keys that a step multiplies after `visible` tokens, its own included; of a mean position their mean.
double step_keys(const AttentionOptions& options, double visible) {
  if (options.family == Family::local) return std::min(visible, static_cast<double>(options.window_left + 1));
  if (options.family != Family::strided) return visible;
  const double stride = static_cast<double>(options.stride);
  if (options.pattern == SparsePattern::strided) return std::min(visible, stride) + (visible - 1) / stride;
  return std::min(visible, (stride + 1) / 2) + (visible - 1) / stride * static_cast<double>(options.summary);
}

/// Of all layers and heads.
AttentionCost attention_cost(const ModelConfig& config, const AttentionOptions& options, std::int64_t length,
                             double pairs) {
  const std::int64_t head_dim = config.width / config.heads;
  AttentionCost cost = least_cost(options, {length, head_dim, head_dim, config.rank}, pairs);
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
