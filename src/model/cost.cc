#include "model/cost.h"

#include <algorithm>
#include <map>

#include "attention/cost.h"
#include "model/config.h"
#include "model/network.h"

namespace linnet {
namespace {

/// Numbers of the weights of a layer's dense products. The keys of lsh are its queries.
double block_weights(const ModelConfig& config, Family family) {
  const double width = static_cast<double>(config.width), projections = family == Family::lsh ? 3 : 4;
  return projections * width * width +
         FeedForward::Parts{config.width, config.feed_forward, config.activation, 0}.weights();
}

/// Of a token in the decoder's layers: the cross attention has two products for it, query and output.
double dense_of_layers(const ModelConfig& config) {
  const double width = static_cast<double>(config.width);
  const double cross = config.has_encoder() ? 2 * width * width : 0;
  return 2 * (layer_weights(config) + static_cast<double>(config.layers) * cross);
}

/// The same with the output head.
double dense(const ModelConfig& config) {
  return dense_of_layers(config) +
         2 * static_cast<double>(config.width) * static_cast<double>(head_outputs(config));
}

/// Of a token of the source: the encoder's layers, and keys and values of every layer of the decoder.
double dense_of_source(const ModelConfig& config) {
  const double width = static_cast<double>(config.width);
  return 2 * (static_cast<double>(config.encoder_layers) * block_weights(config, config.attention.family) +
              static_cast<double>(config.layers) * 2 * width * width);
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

/// Of one query and head to a source: linear attention reads its sums, which is half of a step.
double read_cost(const AttentionOptions& options, const CostSizes& sizes, std::int64_t source) {
  const double cost = least_cost(options, sizes, step_keys(options, static_cast<double>(source))).forward;
  return options.family == Family::linear ? cost / 2 : cost;
}

}  // namespace

double layer_weights(const ModelConfig& config) {
  double weights = 0;
  for (const Family family : layer_families(config.attention, config.layers))
    weights += block_weights(config, family);
  return weights;
}

double encoder_weights(const ModelConfig& config) {
  if (!config.has_encoder()) return 0;
  const double width = static_cast<double>(config.width);
  return static_cast<double>(config.encoder_layers) * block_weights(config, config.attention.family) +
         static_cast<double>(config.layers) * 4 * width * width;
}

TokenCost generation_cost(const ModelConfig& config, double visible) {
  return {dense(config), over_layers(config, [&](const AttentionOptions& options) {
            const double read =
                config.has_encoder() ? read_cost(options, sizes_of(config, 1), config.source_length) : 0;
            return read + least_cost(options, sizes_of(config, 1), step_keys(options, visible)).forward;
          })};
}

double prompt_flops(const ModelConfig& config, std::int64_t length) {
  const double attention = over_layers(config, [&](const AttentionOptions& options) {
    const CostSizes sizes = sizes_of(config, length);
    const double source =
        config.has_encoder()
            ? static_cast<double>(length) * read_cost(options, sizes_of(config, 1), config.source_length)
            : 0;
    return source + least_cost(options, sizes, multiplied_pairs(options, Mask::causal(), length)).forward;
  });
  return static_cast<double>(length) * dense_of_layers(config) + attention;
}

double training_flops(const ModelConfig& config) {
  const double attention = over_layers(config, [&](const AttentionOptions& options) {
    const double pairs =
        multiplied_pairs(options, config.causal() ? Mask::causal() : Mask::full(), config.length);
    return least_cost(options, sizes_of(config, config.length), pairs).training;
  });
  double source = 0;
  if (config.has_encoder()) {
    // Every layer of the encoder among the source's tokens, every one of the decoder to all of them.
    const AttentionOptions options = attention_of(encoder_config(config), config.attention.family);
    const auto attend = [&](std::int64_t queries, std::int64_t layers) {
      const double pairs = static_cast<double>(queries) * static_cast<double>(config.source_length);
      return static_cast<double>(layers * config.heads) *
             least_cost(options, sizes_of(config, std::max(queries, config.source_length)), pairs).training;
    };
    source = 3 * dense_of_source(config) * static_cast<double>(config.source_length) +
             attend(config.source_length, config.encoder_layers) + attend(config.length, config.layers);
  }
  return 3 * dense(config) + (attention + source) / static_cast<double>(config.length);
}

std::size_t step_weight_bytes(const Network& network) {
  std::size_t bytes = network.table().bytes();
  for (const ParameterTable::Row& row : network.table().rows()) {
    const bool of_tables = row.name.starts_with("embedding.") && !row.name.starts_with("embedding.columns."),
               of_head = network.config().tied_output && row.name == "embedding.weight";
    if ((of_tables && !of_head) || row.name.starts_with("encoder.")) bytes -= network.table().bytes(row);
  }
  return bytes;
}

std::size_t prompt_weight_bytes(const Network& network) {
  std::size_t bytes = 0;
  for (const ParameterTable::Row& row : network.table().rows())
    if (row.name.starts_with("layers.") && row.name.find(".cross_attention.key_value.") == std::string::npos)
      bytes += network.table().bytes(row);
  return bytes;
}

}  // namespace linnet
