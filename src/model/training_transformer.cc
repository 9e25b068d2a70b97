#include "model/training_transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"

namespace linnet {

SequencePart PassPart::of_layer(std::size_t layer) const {
  SequencePart result{.position = position};
  if (initial != nullptr) result.initial = initial->layers[layer].get();
  if (final != nullptr) result.final = final->layers[layer].get();
  if (!initial_gradients.empty()) result.initial_gradient = initial_gradients[layer];
  if (!final_gradients.empty()) result.final_gradient = final_gradients[layer];
  result.exchange = exchange;
  return result;
}

TrainingTransformer::TrainingTransformer(const Network& network, std::int64_t batch, std::int64_t length,
                                         bool recompute)
    : network_(network), recompute_(recompute), heads_(network) {
  const ModelConfig& config = network.config();
  const std::int64_t rows = batch * length;
  for (std::size_t i = 0; i <= network.blocks().size(); ++i)
    streams_.push_back(Tensor::of<float>({rows, config.width}));
  if (recompute) {
    // The families of the layers may differ: the one with the most numbers decides.
    const auto memory = [](const Block& block) { return Block::Saved::floats_per_token(block.parts()); };
    saved_.resize(1);
    saved_.front().reserve(batch, length, std::ranges::max_element(network.blocks(), {}, memory)->parts(),
                           config.source_length);
  } else {
    saved_.resize(network.blocks().size());
    for (std::size_t i = 0; i < saved_.size(); ++i)
      saved_[i].reserve(batch, length, network.blocks()[i].parts(), config.source_length);
  }
  if (network.encoder() != nullptr) {
    encoder_.reserve(batch, config.source_length, *network.encoder());
    memory_gradient_ = Tensor::of<float>({batch * config.source_length, config.width});
  }
  if (network.final_norm()) {
    normed_ = Tensor::of<float>({rows, config.width});
    stats_ = Tensor::of<float>({rows, 2});
  }
  gradient_ = Tensor::of<float>({rows, config.width});
  heads_.reserve(batch, length);
}

namespace {

/// Of an example of an encoder–decoder model: floats of the encoder's pass and of the cross attention.
double source_floats(const ModelConfig& config, bool recompute, const ParameterTable& table) {
  if (!config.has_encoder()) return 0;
  const CrossBranch::Parts cross = cross_parts_of(config, 0);
  return static_cast<double>(config.source_length) *
             (Encoder::Saved::floats_per_token(config, table) + static_cast<double>(config.width)) +
         (recompute ? 1.0 : static_cast<double>(config.layers)) *
             CrossBranch::Saved::floats(config.length, config.source_length, cross);
}

}  // namespace

double TrainingTransformer::floats_per_token(const ModelConfig& config, bool recompute,
                                             kernels::WeightType precision) {
  const ParameterTable table(config.weights, precision);
  const double layers = static_cast<double>(config.layers), width = static_cast<double>(config.width);
  double saved = 0;
  for (const Family family : layer_families(config.attention, config.layers)) {
    const double of_layer = Block::Saved::floats_per_token(block_parts_of(config, family), table);
    saved = recompute ? std::max(saved, of_layer) : saved + of_layer;
  }
  const double streams = (layers + 1) * width;
  const double final_norm = config.norm == NormOrder::pre ? width + 2 : 0;
  return streams + saved + final_norm + width + Heads::floats_per_step(config) +
         source_floats(config, recompute, table) / static_cast<double>(config.length);
}

double TrainingTransformer::forward(Context& context, std::span<const std::int32_t> ids,
                                    std::span<const std::int32_t> targets, std::int64_t batch,
                                    std::int64_t length, float weight, const Dropout& dropout,
                                    std::span<const std::int64_t> key_lengths) {
  return forward(
      context, {.batch = batch, .length = length, .ids = ids, .key_lengths = key_lengths, .targets = targets},
      weight, dropout);
}

View<float> TrainingTransformer::cube(Tensor& tensor) const {
  return {tensor.span<float>().data(), {pass_.batch, pass_.length, network_.config().width}};
}

void TrainingTransformer::forward_layer(Context& context, std::size_t layer, const SequencePart& part) {
  network_.blocks()[layer].forward(context, cube(streams_[layer + 1]), cube(streams_[layer]), saved_of(layer),
                                   dropout_, pass_.key_lengths, pass_.positions, memory_, part);
}

void TrainingTransformer::forward_layers(Context& context, const Pass& pass, const Dropout& dropout,
                                         const PassPart& part) {
  pass_ = pass;
  dropout_ = dropout;
  if (const Encoder* encoder = network_.encoder())
    memory_ = {encoder->forward(context, pass.source_tokens(), encoder_, dropout), pass.source_lengths};
  network_.embedding().forward(context, cube(streams_[0]), inputs_.of(network_, pass), part.position,
                               pass.positions);
  for (std::size_t i = 0; i < network_.blocks().size(); ++i) forward_layer(context, i, part.of_layer(i));
}

void TrainingTransformer::advance(Context& context, const Pass& pass, const Dropout& dropout,
                                  const PassPart& part) {
  forward_layers(context, pass, dropout, part);
}

double TrainingTransformer::forward(Context& context, const Pass& pass, float weight, const Dropout& dropout,
                                    const PassPart& part) {
  forward_layers(context, pass, dropout, part);
  View<float> hidden = flat(streams_.back());
  if (network_.final_norm()) {
    network_.final_norm()->forward(context, flat(normed_), flat(stats_), hidden);
    hidden = flat(normed_);
  }
  loss_ = heads_.loss(context, hidden, pass, {}, &weight);
  return loss_;
}

void TrainingTransformer::backward(Context& context, std::span<float> gradients, const PassPart& part,
                                   const GradientsComplete& complete) {
  const View<float> gradient = flat(gradient_);
  if (network_.final_norm()) {
    heads_.backward(context, gradient, flat(normed_), gradients);
    network_.final_norm()->backward(context, gradient, gradient, flat(streams_.back()), flat(stats_),
                                    gradients, false);
  } else {
    heads_.backward(context, gradient, flat(streams_.back()), gradients);
  }
  if (complete) complete(network_.first_after_blocks());
  View<float> dmemory;
  if (network_.encoder() != nullptr) {
    dmemory = {memory_gradient_.span<float>().data(),
               {pass_.batch, memory_.rows.extent(1), network_.config().width}};
    std::fill_n(dmemory.data(), dmemory.size(), 0.0f);
  }
  const std::size_t layers = network_.blocks().size();
  for (std::size_t i = layers; i-- > 0;) {
    SequencePart own = part.of_layer(i);
    own.final = nullptr;  // it is there already
    // The last layer's numbers are still there. The next layer's input becomes the same bits once more.
    if (recompute_ && i + 1 < layers) forward_layer(context, i, own);
    network_.blocks()[i].backward(context, cube(gradient_), cube(streams_[i]), saved_of(i), dropout_,
                                  gradients, memory_, dmemory, own);
    if (complete) complete(network_.first_of_block(i));
  }
  network_.embedding().backward(context, cube(gradient_), inputs_.of(network_, pass_), gradients,
                                part.position, pass_.positions);
  if (complete) complete(network_.first_of_embedding());
  if (const Encoder* encoder = network_.encoder())
    encoder->backward(context, dmemory, pass_.source_tokens(), encoder_, dropout_, gradients, complete);
}

std::string TrainingTransformer::first_not_finite(Context& context) const {
  const auto finite = [&](std::span<const float> values, std::int64_t count) {
    return std::isfinite(kernels::sum_of_squares(context, values.first(static_cast<std::size_t>(count))));
  };
  const std::int64_t rows = pass_.rows();
  if (network_.encoder() != nullptr) {
    const View<const float> memory = memory_.rows;
    if (!finite({memory.data(), static_cast<std::size_t>(memory.size())}, memory.size())) return "encoder";
  }
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (finite(streams_[i].span<float>(), rows * network_.config().width)) continue;
    return i == 0 ? "embedding" : fmt::format("layers.{}", i - 1);
  }
  return std::isfinite(loss_) ? "" : "head";
}

}  // namespace linnet
