#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/heads.h"
#include "model/network.h"
#include "model/transformer.h"

namespace linnet {

/// The part of longer sequences that a pass holds, in all layers.
struct PassPart {
  std::int64_t position = 0;                ///< of the first step in its sequence
  const RecurrentState* initial = nullptr;  ///< what the steps before have left; null: there are none
  RecurrentState* final = nullptr;          ///< assigned by `forward`; may not be `initial`
  std::span<const View<float>> initial_gradients = {};  ///< of each layer [batch, G], assigned by `backward`
  std::span<const View<float>> final_gradients = {};    ///< the same, read; empty: zero
  StretchExchange* exchange = nullptr;                  ///< as in SequencePart, in place of all states

  SequencePart of_layer(std::size_t layer) const;
};

/// The parallel form with its backward: a forward pass keeps what the backward pass reads. Memory for batches
/// of up to `batch` × `length` tokens is taken at construction.
class TrainingTransformer {
 public:
  /// With `recompute` the input of every layer is kept alone, and `backward` computes the rest of a layer
  /// once more: a forward pass of time for most of the memory, and the same bits (Chen et al. 2016,
  /// "Training deep nets with sublinear memory cost").
  TrainingTransformer(const Network& network, std::int64_t batch, std::int64_t length,
                      bool recompute = false);

  /// Of the memory that the constructor takes: floats for each of the batch · length tokens, with a network
  /// that is trained with products of type `precision`.
  static double floats_per_token(const ModelConfig& config, bool recompute = false,
                                 kernels::WeightType precision = kernels::WeightType::f32);

  /// Σ −log p in nats over the targets that count. `weight` multiplies the gradient that `backward` will
  /// start from. The loss is kept per step for `first_not_finite`. The memory of the pass stays the caller's
  /// until `backward`.
  double forward(Context& context, const Pass& pass, float weight, const Dropout& dropout,
                 const PassPart& part = {});

  /// The same for steps of one token: ids and targets [batch · length].
  double forward(Context& context, std::span<const std::int32_t> ids, std::span<const std::int32_t> targets,
                 std::int64_t batch, std::int64_t length, float weight, const Dropout& dropout,
                 std::span<const std::int64_t> key_lengths = {});

  /// The states alone that `forward` leaves, without a loss; no backward follows.
  void advance(Context& context, const Pass& pass, const Dropout& dropout, const PassPart& part);

  /// Adds the gradients of weight · (what `forward` returned) to the buffer, once after each forward, with
  /// its part. `complete`, if given, hears after every layer how far it is. A table or projection that
  /// several layers share belongs to the first of them, whose backward comes last.
  void backward(Context& context, std::span<float> gradients, const PassPart& part = {},
                const GradientsComplete& complete = {});

  /// Where the last forward pass left the finite numbers first: "embedding", "layers.3", "head"; empty if
  /// nowhere.
  std::string first_not_finite(Context& context) const;

 private:
  void forward_layers(Context& context, const Pass& pass, const Dropout& dropout, const PassPart& part);
  void forward_layer(Context& context, std::size_t layer, const SequencePart& part);
  Block::Saved& saved_of(std::size_t layer) { return saved_[recompute_ ? 0 : layer]; }
  View<float> cube(Tensor& tensor) const;  ///< of a tensor's first rows
  View<float> flat(Tensor& tensor) const { return tensor.view<float>().slice(0, 0, pass_.rows()); }

  const Network& network_;
  bool recompute_;
  std::vector<Tensor> streams_;  ///< input of every block, then of the final norm; [batch · length, width]
  std::vector<Block::Saved> saved_;  ///< of every block, or of the one that is computed now
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
