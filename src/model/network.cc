#include "model/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/lsh/hash.h"
#include "attention/sparse/strided_attention.h"
#include "model/config.h"

namespace linnet {
namespace {

kernels::Activation activation_of(const ModelConfig& config) {
  if (config.activation == "relu") return kernels::Activation::relu;
  return config.activation == "gelu-tanh" ? kernels::Activation::gelu_tanh : kernels::Activation::gelu;
}

Positions positions_of(const ModelConfig& config) {
  if (config.positions == "sinusoidal") return Positions::sinusoidal;
  return config.positions == "none" ? Positions::none : Positions::learned;
}

SelfAttention::Decay decay_of(const ModelConfig& config) {
  if (config.decay == "none") return SelfAttention::Decay::none;
  return config.decay == "fixed" ? SelfAttention::Decay::fixed : SelfAttention::Decay::learned;
}

SelfAttention::Sharing sharing_of(const ModelConfig& config) {
  using Sharing = SelfAttention::Sharing;
  if (config.sharing == "none") return Sharing::none;
  if (config.sharing == "headwise") return Sharing::headwise;
  return config.sharing == "key-value" ? Sharing::key_value : Sharing::layerwise;
}

/// γ of each head, its memory 1/(1 − γ) going geometrically from the shortest to the longest.
std::vector<float> initial_decay(const ModelConfig& config) {
  std::vector<float> decay;
  if (config.decay == "none") return decay;
  for (std::int64_t head = 0; head < config.heads; ++head) {
    const double share =
        config.heads == 1 ? 0 : static_cast<double>(head) / static_cast<double>(config.heads - 1);
    const double memory =
        config.shortest_memory * std::pow(config.longest_memory / config.shortest_memory, share);
    decay.push_back(static_cast<float>(1 - 1 / memory));
  }
  return decay;
}

}  // namespace

AttentionOptions attention_of(const ModelConfig& config, std::shared_ptr<const FeatureMap> feature_map) {
  AttentionOptions attention;
  attention.family = find_family(config.family);
  attention.feature_map = feature_map && feature_map->name() == config.feature_map ? std::move(feature_map)
                                                                                   : feature_map_of(config);
  attention.normalise = config.normalise == "none" ? Normalise::none : Normalise::sum;
  attention.epsilon = static_cast<float>(config.epsilon);
  attention.similarity = find_similarity(config.similarity);
  attention.window_left = config.window;
  attention.window_right = config.masked() ? config.window : 0;
  attention.pattern = config.pattern == "fixed" ? SparsePattern::fixed : SparsePattern::strided;
  // Streams have no length of their own: the stride is that of the examples.
  attention.stride = config.stride != 0 ? config.stride : default_stride(config.length);
  attention.summary = std::min(attention.summary, attention.stride);
  attention.lsh = {.buckets = config.buckets,
                   .chunk = config.chunk,
                   .rounds = config.rounds,
                   .seed = static_cast<std::uint64_t>(config.seed)};
  // A sequence keeps its hashes however long the batch around it is.
  constexpr std::int64_t most_buckets = 1 << 16;
  attention.lsh.buckets = std::min(lsh::bucket_count(attention.lsh, config.length), most_buckets);
  // Where no stream is longer than this, plain sums stay exact enough and the state is half as large.
  constexpr std::int64_t plain_length = 1 << 16;
  const bool bounded = config.positions == "learned" || config.image_height > 0;
  attention.sums = bounded && config.length <= plain_length ? StateSums::plain : StateSums::compensated;
  return attention;
}

Block::Parts block_parts_of(const ModelConfig& config, std::shared_ptr<const FeatureMap> feature_map) {
  // Every layer adds two branches to the residual stream; their initial sum should not grow with the depth.
  const double depth = std::sqrt(2.0 * static_cast<double>(config.layers));
  const double width = static_cast<double>(config.width), hidden = static_cast<double>(config.feed_forward);
  return {.attention = {.width = config.width,
                        .heads = config.heads,
                        .attention = attention_of(config, std::move(feature_map)),
                        .causal = !config.masked(),
                        .decay = decay_of(config),
                        .initial_decay = initial_decay(config),
                        .output_deviation = 1 / (std::sqrt(width) * depth),
                        .projections = {config.rank, config.length, sharing_of(config)},
                        .random_map = is_random_feature_map(config.feature_map) ? config.feature_map : "",
                        .random = random_features_of(config)},
          .feed_forward = {config.width, config.feed_forward, activation_of(config),
                           1 / (std::sqrt(hidden) * depth)},
          .norm_first = config.norm == "pre"};
}

std::int64_t head_outputs(const ModelConfig& config) {
  return config.head == "logistics" ? 3 * config.mixtures : config.vocabulary;
}

Network::Network(const ModelConfig& config, std::shared_ptr<const FeatureMap> feature_map)
    : config_(config),
      table_(kernels::find_weight_type(config.weights)),
      block_parts_((config.check(), block_parts_of(config, std::move(feature_map)))) {
  embedding_.emplace(table_, "embedding",
                     Embedding::Shape{config.input_tokens(), config.width, config.length,
                                      positions_of(config), config.tied_output});
  blocks_.reserve(static_cast<std::size_t>(config.layers));
  for (int layer = 0; layer < config.layers; ++layer) {
    Block::Parts parts = block_parts_;
    parts.layer = parts.attention.attention.layer = layer;
    if (layer > 0) parts.attention.projections.owned = blocks_.front().attention().projection();
    blocks_.emplace_back(table_, fmt::format("layers.{}", layer), parts);
  }
  if (block_parts_.norm_first) final_norm_.emplace(table_, "final_norm", config.width);
  head_ = config.head == "logistics"
              ? OutputHead::logistic_mixture(table_, "head", config.width, config.vocabulary, config.mixtures)
              : OutputHead::categorical(table_, "head", config.width, config.vocabulary,
                                        config.tied_output ? &embedding_->table() : nullptr);
}

void Network::redraw(std::span<float> parameters, std::uint64_t draw) const {
  for (const Block& block : blocks_) block.attention().redraw(parameters, draw);
}

void Network::pack(Context& context, std::span<const float> parameters, bool training) {
  embedding_->pack(context, parameters);
  for (Block& block : blocks_) block.pack(context, parameters, training);
  if (final_norm_) final_norm_->pack(parameters);
  head_->pack(context, parameters, training);
}

void Network::unpack(std::span<float> parameters) const {
  for (const Block& block : blocks_) block.unpack(parameters);
  head_->unpack(parameters);
}

}  // namespace linnet
