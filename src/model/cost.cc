#include "model/cost.h"

#include <map>

#include "attention/cost.h"
#include "model/network.h"

namespace linnet {
namespace {

double dense(const ModelConfig& config) {
  const double width = static_cast<double>(config.width), outputs = static_cast<double>(head_outputs(config));
  return 2 * (static_cast<double>(config.layers) * block_weights(config) + width * outputs);
}

/// Σ over the layers of what `cost` says of their attention, for one head of each, times the heads.
template <class Cost>
double over_layers(const ModelConfig& config, const Cost& cost) {
  std::map<Family, double> layers;
  for (const Family family : layer_families(config.attention, config.layers)) layers[family] += 1;
  double sum = 0;
  for (const auto& [family, count] : layers) sum += count * cost(attention_of(config, family));
  return sum * static_cast<double>(config.heads);
}

CostSizes sizes_of(const ModelConfig& config, std::int64_t length) {
  const std::int64_t head_dim = config.width / config.heads;
  return {length, head_dim, head_dim, config.attention.linformer.rank};
}

}  // namespace

double block_weights(const ModelConfig& config) {
  const double width = static_cast<double>(config.width);
  return 4 * width * width +
         FeedForward::Parts{config.width, config.feed_forward, config.activation, 0}.weights();
}

TokenCost generation_cost(const ModelConfig& config, double visible) {
  return {dense(config), over_layers(config, [&](const AttentionOptions& options) {
            return least_cost(options, sizes_of(config, 1), step_keys(options, visible)).forward;
          })};
}

double training_flops(const ModelConfig& config) {
  const double attention = over_layers(config, [&](const AttentionOptions& options) {
    const double pairs =
        multiplied_pairs(options, config.masked() ? Mask::full() : Mask::causal(), config.length);
    return least_cost(options, sizes_of(config, config.length), pairs).training;
  });
  return 3 * dense(config) + attention / static_cast<double>(config.length);
}

}  // namespace linnet
