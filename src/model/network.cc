#include "model/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/family.h"
#include "kernels/loss.h"
#include "model/config.h"

namespace linnet {
namespace {

/// γ of each head, its memory 1/(1 − γ) going geometrically from the shortest to the longest.
std::vector<float> initial_decay(const LinearConfig& linear, std::int64_t heads) {
  std::vector<float> decay;
  if (linear.decay == Decay::none) return decay;
  for (std::int64_t head = 0; head < heads; ++head) {
    const double share = heads == 1 ? 0 : static_cast<double>(head) / static_cast<double>(heads - 1);
    const double memory =
        linear.shortest_memory * std::pow(linear.longest_memory / linear.shortest_memory, share);
    decay.push_back(static_cast<float>(1 - 1 / memory));
  }
  return decay;
}

/// The name of a random feature map, whose draws are parameters of the layers; empty for other maps.
std::string random_map_of(const ModelConfig& config, Family family, const FeatureMap* own) {
  const std::string& name = config.attention.linear.feature_map;
  const bool drawn = own == nullptr && info_of(family).takes_feature_map;
  return drawn && is_random_feature_map(name) ? name : "";
}

}  // namespace

AttentionOptions attention_of(const ModelConfig& config, Family family,
                              std::shared_ptr<const FeatureMap> feature_map) {
  return attention_options(config_of_layer(config.attention, family), sequence_of(config),
                           config.width / config.heads, std::move(feature_map));
}

Block::Parts block_parts_of(const ModelConfig& config, Family family,
                            const std::shared_ptr<const FeatureMap>& feature_map) {
  const LinearConfig linear = config_of_layer(config.attention, family).linear;
  // Every layer adds two or three branches to the residual stream; their initial sum should not grow with the
  // depth.
  const double branches = config.has_encoder() && config.causal() ? 3 : 2;
  const double depth = std::sqrt(branches * static_cast<double>(config.layers));
  const double width = static_cast<double>(config.width), hidden = static_cast<double>(config.feed_forward);
  return {
      .attention = {.width = config.width,
                    .heads = config.heads,
                    .attention = attention_of(config, family, feature_map),
                    .causal = config.causal(),
                    .decay = linear.decay,
                    .initial_decay = initial_decay(linear, config.heads),
                    .output_deviation = 1 / (std::sqrt(width) * depth),
                    .projections = {config.attention.linformer.rank, config.length,
                                    config.attention.linformer.sharing},
                    .random_map = random_map_of(config, family, feature_map.get()),
                    .random = random_features_of(config.attention),
                    .rotary = config.positions == Positions::rotary},
      .feed_forward = {config.width, config.feed_forward, config.activation, 1 / (std::sqrt(hidden) * depth)},
      .norm_first = config.norm == NormOrder::pre,
      .norm = config.norm_kind};
}

CrossBranch::Parts cross_parts_of(const ModelConfig& config, int layer,
                                  const std::shared_ptr<const FeatureMap>& feature_map) {
  const ModelConfig encoder = encoder_config(config);
  const Block::Parts like = block_parts_of(encoder, encoder.attention.family, feature_map);
  CrossBranch::Parts parts = {
      .attention = {.width = config.width,
                    .heads = config.heads,
                    .attention = like.attention.attention,
                    .output_deviation = block_parts_of(config, config.attention.family, feature_map)
                                            .attention.output_deviation,
                    .random_map = like.attention.random_map,
                    .random = like.attention.random},
      .norm_first = like.norm_first,
      .norm = like.norm};
  // After the layers of the decoder and of the encoder where layers are told apart.
  parts.layer = parts.attention.attention.layer =
      static_cast<int>(config.layers + config.encoder_layers) + layer;
  return parts;
}

std::int64_t head_outputs(const ModelConfig& config) {
  if (config.classifies()) return 0;
  const std::int64_t values = kernels::value_parameters(config.value_head) * config.target_count();
  if (config.objective == Objective::same_step || config.vocabulary == 0) return values;
  if (config.head == OutputDistribution::logistics) return 3 * config.mixtures + values;
  const std::vector<std::int64_t> sizes = config.field_sizes();
  return std::accumulate(sizes.begin(), sizes.end(), values);
}

Network::Network(const ModelConfig& config, const std::shared_ptr<const FeatureMap>& feature_map,
                 WeightType training_type)
    : config_((config.check(), config)), table_(config.weights, training_type) {
  const std::vector<std::int64_t> sizes = config.field_sizes();
  std::vector<std::int64_t> later(sizes.begin() + (sizes.empty() ? 0 : 1), sizes.end());
  if (config.shifted() || config.masked())
    for (std::int64_t& rows : later) ++rows;  // the start or the mask token
  if (config.has_encoder()) encoder_.emplace(table_, config, feature_map);
  first_of_embedding_ = table_.size();
  embedding_.emplace(table_, "embedding",
                     Embedding::Shape{config.input_tokens(), config.width, config.length, config.positions,
                                      config.tied_output, later, config.columns});
  blocks_.reserve(static_cast<std::size_t>(config.layers));
  const std::vector<Family> families = layer_families(config.attention, config.layers);
  for (int layer = 0; layer < config.layers; ++layer) {
    Block::Parts parts = block_parts_of(config, families[static_cast<std::size_t>(layer)], feature_map);
    parts.layer = parts.attention.attention.layer = layer;
    const auto owner =
        std::ranges::find_if(blocks_, [](const Block& block) { return block.attention().projection(); });
    if (owner != blocks_.end()) parts.attention.projections.owned = owner->attention().projection();
    if (config.has_encoder()) parts.cross = cross_parts_of(config, layer, feature_map);
    first_of_block_.push_back(table_.size());
    blocks_.emplace_back(table_, fmt::format("layers.{}", layer), parts);
  }
  first_of_block_.push_back(table_.size());
  if (config.norm == NormOrder::pre)
    final_norm_.emplace(table_, "final_norm", config.width, config.norm_kind);
  if (config.columns > 0 || config.target_count() > 0)
    columns_.emplace(table_, "columns",
                     Columns::Shape{config.columns, config.target_count(), config.relative,
                                    config.relative_inputs, config.patch});
  if (config.target_count() > 0)
    value_head_.emplace(table_, "value_head", config.width, config.target_count(), config.value_head);
  if (config.classifies())
    classifier_ = OutputHead::categorical(table_, "classifier", config.width, config.classes, nullptr);
  if (config.classifies() || config.objective == Objective::same_step || sizes.empty()) return;
  head_ = config.head == OutputDistribution::logistics
              ? OutputHead::logistic_mixture(table_, "head", config.width, sizes.front(), config.mixtures)
              : OutputHead::categorical(table_, "head", config.width, sizes.front(),
                                        config.tied_output ? &embedding_->table() : nullptr);
  for (std::size_t f = 1; f < sizes.size(); ++f) {
    const std::string name = fmt::format("fields.{}", f);
    if (config.masked())
      single_fields_.push_back(
          OutputHead::categorical(table_, name + ".head", config.width, sizes[f], nullptr));
    else
      later_fields_.emplace_back(table_, name, config.width, sizes[f - 1], sizes[f]);
  }
}

void Network::redraw(std::span<float> parameters, std::uint64_t draw) const {
  if (encoder_) encoder_->redraw(parameters, draw);
  for (const Block& block : blocks_) {
    block.attention().redraw(parameters, draw);
    if (block.cross() != nullptr) block.cross()->attention().redraw(parameters, draw);
  }
}

void Network::pack(Context& context, const ParameterValues& parameters, bool training) {
  if (encoder_) encoder_->pack(context, parameters, training);
  embedding_->pack(context, parameters, training);
  for (Block& block : blocks_) block.pack(context, parameters, training);
  if (final_norm_) final_norm_->pack(parameters);
  if (columns_) columns_->pack(parameters);
  if (value_head_) value_head_->pack(context, parameters, training);
  if (classifier_) classifier_->pack(context, parameters, training);
  if (head_) head_->pack(context, parameters, training);
  for (LaterField& field : later_fields_) field.pack(context, parameters, training);
  for (const auto& field : single_fields_) field->pack(context, parameters, training);
}

void Network::unpack(std::span<float> parameters) const {
  if (encoder_) encoder_->unpack(parameters);
  embedding_->unpack(parameters);
  for (const Block& block : blocks_) block.unpack(parameters);
  if (value_head_) value_head_->unpack(parameters);
  if (classifier_) classifier_->unpack(parameters);
  if (head_) head_->unpack(parameters);
  for (const LaterField& field : later_fields_) field.unpack(parameters);
  for (const auto& field : single_fields_) field->unpack(parameters);
}

}  // namespace linnet
