#include "model/training_transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"

namespace linnet {

TrainingTransformer::TrainingTransformer(const Network& network, std::int64_t batch, std::int64_t length)
    : network_(network), heads_(network) {
  const ModelConfig& config = network.config();
  const std::int64_t rows = batch * length;
  for (std::size_t i = 0; i <= network.blocks().size(); ++i)
    streams_.push_back(Tensor::of<float>({rows, config.width}));
  saved_.resize(network.blocks().size());
  for (std::size_t i = 0; i < saved_.size(); ++i)
    saved_[i].reserve(batch, length, network.blocks()[i].parts(), config.source_length);
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
double source_floats(const ModelConfig& config) {
  if (!config.has_encoder()) return 0;
  const CrossBranch::Parts cross = cross_parts_of(config, 0);
  return static_cast<double>(config.source_length) *
             (Encoder::Saved::floats_per_token(config) + static_cast<double>(config.width)) +
         static_cast<double>(config.layers) *
             CrossBranch::Saved::floats(config.length, config.source_length, cross);
}

}  // namespace

double TrainingTransformer::floats_per_token(const ModelConfig& config) {
  const double layers = static_cast<double>(config.layers), width = static_cast<double>(config.width);
  double saved = 0;
  for (const Family family : layer_families(config.attention, config.layers))
    saved += Block::Saved::floats_per_token(block_parts_of(config, family));
  const double streams = (layers + 1) * width;
  const double final_norm = config.norm == NormOrder::pre ? width + 2 : 0;
  return streams + saved + final_norm + width + Heads::floats_per_step(config) +
         source_floats(config) / static_cast<double>(config.length);
}

double TrainingTransformer::forward(Context& context, std::span<const std::int32_t> ids,
                                    std::span<const std::int32_t> targets, std::int64_t batch,
                                    std::int64_t length, float weight, const Dropout& dropout,
                                    std::span<const std::int64_t> key_lengths) {
  return forward(
      context, {.batch = batch, .length = length, .ids = ids, .key_lengths = key_lengths, .targets = targets},
      weight, dropout);
}

double TrainingTransformer::forward(Context& context, const Pass& pass, float weight,
                                    const Dropout& dropout) {
  pass_ = pass;
  dropout_ = dropout;
  const std::int64_t rows = pass.rows(), width = network_.config().width;
  const auto cube = [&](Tensor& tensor) {
    return View<float>(tensor.span<float>().data(), {pass.batch, pass.length, width});
  };
  const auto flat = [&](Tensor& tensor) { return tensor.view<float>().slice(0, 0, rows); };

  if (const Encoder* encoder = network_.encoder())
    memory_ = {encoder->forward(context, pass.source_tokens(), encoder_, dropout), pass.source_lengths};
  network_.embedding().forward(context, cube(streams_[0]), inputs_.of(network_, pass), 0, pass.positions);
  for (std::size_t i = 0; i < saved_.size(); ++i)
    network_.blocks()[i].forward(context, cube(streams_[i + 1]), cube(streams_[i]), saved_[i], dropout,
                                 pass.key_lengths, pass.positions, memory_);
  View<float> hidden = flat(streams_.back());
  if (network_.final_norm()) {
    network_.final_norm()->forward(context, flat(normed_), flat(stats_), hidden);
    hidden = flat(normed_);
  }
  loss_ = heads_.loss(context, hidden, pass, {}, &weight);
  return loss_;
}

void TrainingTransformer::backward(Context& context, std::span<float> gradients) {
  const std::int64_t rows = pass_.rows(), width = network_.config().width;
  const auto cube = [&](Tensor& tensor) {
    return View<float>(tensor.span<float>().data(), {pass_.batch, pass_.length, width});
  };
  const auto flat = [&](Tensor& tensor) { return tensor.view<float>().slice(0, 0, rows); };

  const View<float> gradient = flat(gradient_);
  if (network_.final_norm()) {
    heads_.backward(context, gradient, flat(normed_), gradients);
    network_.final_norm()->backward(context, gradient, gradient, flat(streams_.back()), flat(stats_),
                                    gradients, false);
  } else {
    heads_.backward(context, gradient, flat(streams_.back()), gradients);
  }
  View<float> dmemory;
  if (network_.encoder() != nullptr) {
    dmemory = {memory_gradient_.span<float>().data(), {pass_.batch, memory_.rows.extent(1), width}};
    std::fill_n(dmemory.data(), dmemory.size(), 0.0f);
  }
  for (std::size_t i = saved_.size(); i-- > 0;)
    network_.blocks()[i].backward(context, cube(gradient_), cube(streams_[i]), saved_[i], dropout_, gradients,
                                  memory_, dmemory);
  network_.embedding().backward(context, cube(gradient_), inputs_.of(network_, pass_), gradients,
                                pass_.positions);
  if (const Encoder* encoder = network_.encoder())
    encoder->backward(context, dmemory, pass_.source_tokens(), encoder_, dropout_, gradients);
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
