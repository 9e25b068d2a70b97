#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/heads.h"
#include "model/network.h"

namespace linnet {

/// The parallel form with its backward: a forward pass keeps what the backward pass reads. Memory for batches
/// of up to `batch` × `length` tokens is taken at construction.
class TrainingTransformer {
 public:
  TrainingTransformer(const Network& network, std::int64_t batch, std::int64_t length);

  /// Of the memory that the constructor takes: floats for each of the batch · length tokens.
  static double floats_per_token(const ModelConfig& config);

  /// Σ −log p in nats over the targets that count. `weight` multiplies the gradient that `backward` will
  /// start from. The loss is kept per step for `first_not_finite`. The memory of the pass stays the caller's
  /// until `backward`.
  double forward(Context& context, const Pass& pass, float weight, const Dropout& dropout);

  /// The same for steps of one token: ids and targets [batch · length].
  double forward(Context& context, std::span<const std::int32_t> ids, std::span<const std::int32_t> targets,
                 std::int64_t batch, std::int64_t length, float weight, const Dropout& dropout,
                 std::span<const std::int64_t> key_lengths = {});

  /// Adds the gradients of weight · (what `forward` returned) to the buffer, once after each forward.
  void backward(Context& context, std::span<float> gradients);

  /// Where the last forward pass left the finite numbers first: "embedding", "layers.3", "head"; empty if
  /// nowhere.
  std::string first_not_finite(Context& context) const;

 private:
  const Network& network_;
  std::vector<Tensor> streams_;  ///< input of every block, then of the final norm; [batch · length, width]
  std::vector<Block::Saved> saved_;
  Tensor normed_, stats_, gradient_;
  Encoder::Saved encoder_;
  Memory memory_;           ///< of the last pass
  Tensor memory_gradient_;  ///< of its rows
  NormalisedInputs inputs_;
  Heads heads_;
  double loss_ = 0;
  Pass pass_;
  Dropout dropout_;
};

}  // namespace linnet
