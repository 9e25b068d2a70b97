#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/network.h"

namespace linnet {

/// Steps of one pass through a model, and what is to be predicted. Those of entry b are the rows b · length …
/// b · length + length − 1; what the model does not have is empty.
struct Pass {
  std::int64_t batch = 0, length = 0;
  std::span<const std::int32_t> ids = {};          ///< [rows, input_fields] tokens of the inputs
  std::span<const float> values = {};              ///< [rows, columns] of the inputs, NaN where there is none
  std::span<const std::int64_t> key_lengths = {};  ///< [batch] steps before the padding; empty: all
  std::span<const std::int32_t> targets = {};      ///< [rows, fields], negative ones do not count
  std::span<const std::int32_t> conditions = {};   ///< [rows, fields] as in Batch; empty: the targets
  std::span<const float> value_targets = {};       ///< [rows, targets], NaN does not count
  std::span<const std::int32_t> labels = {};       ///< [batch], negative ones do not count
  std::span<const std::int32_t> positions = {};    ///< [rows] as in Batch; empty: one sequence each
  /// Factors of the gradients of the heads: of each field of tokens, then of the real numbers. Empty: 1 each.
  std::span<const float> head_weights = {};
  /// Of an encoder–decoder model: the tokens of the sources, as many for each entry, and how many of them
  /// come before the padding, [batch] (empty: all).
  std::span<const std::int32_t> source = {};
  std::span<const std::int64_t> source_lengths = {};

  /// Of a pass that begins within its sequences: [batch, columns], the inputs before its first steps.
  std::span<const float> values_before = {};

  std::int64_t rows() const { return batch * length; }
  std::span<const std::int32_t> conditions_or_targets() const {
    return conditions.empty() ? targets : conditions;
  }
  Encoder::Source source_tokens() const {
    return {source, batch, std::ssize(source) / batch, source_lengths};
  }
};

/// The inputs of a network's embedding: the real numbers of a pass, normalised.
class NormalisedInputs {
 public:
  StepInputs of(const Network& network, const Pass& pass);

 private:
  Tensor values_;
};

/// The losses of all output heads of a network over the hidden rows of a pass, with their gradients. The
/// memory grows to the largest pass.
class Heads {
 public:
  explicit Heads(const Network& network) : network_(network) {}

  /// Takes the memory of passes of up to `batch` × `length` steps, with that of `backward`.
  void reserve(std::int64_t batch, std::int64_t length);

  /// Floats per step that `reserve` takes.
  static double floats_per_step(const ModelConfig& config);

  /// Σ −log p in nats over everything that counts. nll, where not empty, receives that of every row, [batch ·
  /// length]; of a classifier that of every entry, [batch]. With `weight`, the gradient of weight · Σ is kept
  /// for `backward` in place of the parameters, that of a head multiplied by its weight in the pass. The
  /// spans of the pass must stay until then.
  double loss(Context& context, View<const float> hidden, const Pass& pass, std::span<float> nll,
              const float* weight);

  /// The classifier's logits [batch, classes] from hidden rows [batch, length, width].
  void label_parameters(Context& context, View<float> logits, View<const float> hidden, const Pass& pass);

  /// dhidden [rows, width] is assigned, gradients of parameters are added; once after a `loss` with weight.
  void backward(Context& context, View<float> dhidden, View<const float> hidden, std::span<float> gradients);

  /// The parameters of the last `loss` without weight, [rows, outputs]: of the tokens' first field, of a
  /// classifier [batch, classes], of the real numbers, and of field f > 0.
  View<const float> parameters() const { return parameters_; }
  View<const float> value_parameters() const { return value_parameters_; }
  View<const float> field_parameters(std::size_t field) const { return later_[field - 1].parameters; }
  /// Of several fields, −log p of the tokens of one in the last `loss` without weight, [rows].
  std::span<const float> field_nll(std::size_t field) const {
    return std::span(field_nll_[field]).first(static_cast<std::size_t>(pass_.rows()));
  }
  /// The parts of the last loss, in nats: of all tokens, and of the real numbers.
  double token_nats() const { return token_nats_; }
  double value_nats() const { return value_nats_; }

  /// The normalised targets of the real numbers of the last `loss`, [rows, targets].
  View<const float> value_targets() const { return value_targets_; }

 private:
  struct Later {
    LaterField::Saved saved;
    Tensor memory;
    View<float> parameters;
  };

  double token_loss(Context& context, View<const float> hidden, std::span<float> nll, const float* weight);
  double value_loss(Context& context, View<const float> hidden, std::span<float> nll, const float* weight);
  double label_loss(Context& context, View<const float> hidden, std::span<float> nll, const float* weight);

  /// The factor of the gradient of a head, where `weight` is that of the pass.
  float factor_of(std::int64_t head, const float* weight) const;

  const Network& network_;
  double token_nats_ = 0, value_nats_ = 0;
  bool keeps_ = false;  ///< whether later fields keep what a backward needs
  Pass pass_;
  Tensor token_memory_, value_memory_, target_memory_, chain_, pooled_;
  View<float> parameters_, value_parameters_, value_targets_;
  std::vector<Later> later_;
  std::vector<float> own_nll_, part_nll_;
  std::vector<std::vector<float>> field_nll_;
  std::vector<std::int32_t> field_targets_;  ///< of one of several fields
};

}  // namespace linnet
