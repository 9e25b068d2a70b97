#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/heads.h"
#include "model/network.h"

namespace linnet {

/// The states of all layers for a number of streams: one slot a stream in each.
struct RecurrentState {
  std::vector<std::unique_ptr<State>> layers;
  /// Of an encoder–decoder model: what every layer's cross attention reads of the stream's source.
  std::vector<std::unique_ptr<State>> memories;

  RecurrentState() = default;
  /// `capacity` tokens a stream are reserved where memory grows with them. Throws Error for a model without a
  /// recurrent form, and where less memory is free than the slots take.
  RecurrentState(const Network& network, std::int64_t slots, std::int64_t capacity = 0);

  std::int64_t position(std::int64_t slot) const { return layers.front()->position(slot); }
  /// Tokens of the stream's source; 0 where there is none.
  std::int64_t source_tokens(std::int64_t slot) const {
    return memories.empty() ? 0 : memories.front()->position(slot);
  }
  std::size_t bytes(std::int64_t slot) const;
  void reset(std::int64_t slot);

  /// As `State::reserve` in every layer: whatever it throws, the slot stays as it was.
  void reserve(std::int64_t slot, std::int64_t tokens);

  /// Throws std::bad_alloc before anything has changed.
  void copy(std::int64_t slot, const RecurrentState& source, std::int64_t source_slot);

  /// Leaves what the layers of the network read of the rows of an encoder, slot b that of entry b.
  void summarise(Context& context, const Network& network, const Memory& memory);

  /// Whether the slot has seen that many tokens in every layer, which it has not where a step failed between
  /// two layers.
  bool stands_at(std::int64_t slot, std::int64_t position) const;

  /// All layers' numbers, as f32; and back again, with the number of tokens they stand for.
  /// Throws Error where the size does not fit; the first layers may then have changed.
  std::vector<std::byte> save(std::int64_t slot) const;
  void restore(std::int64_t slot, std::span<const std::byte> bytes, std::int64_t position);
};

/// The parallel form without a backward: prefill and evaluation. One object serves one call at a time;
/// it grows to the largest pass and is then reused.
class Transformer {
 public:
  explicit Transformer(const Network& network) : network_(network), heads_(network) {}

  /// Hidden rows [batch, length, width] for the inputs of batch · length steps, of which the first of each
  /// entry stands at `position`; what the output head takes. Continues `initial` and leaves `final` (each
  /// `batch` slots), where given. `key_lengths` [batch], where not empty, are the tokens of each entry: the
  /// rest of it is padding. `positions` as in SelfAttention. The layers of a decoder that has an encoder read
  /// `memory`, or what `initial` has of it. The view lives until the next call.
  View<const float> forward(Context& context, const StepInputs& inputs, std::int64_t batch,
                            std::int64_t length, std::int64_t position = 0,
                            const RecurrentState* initial = nullptr, RecurrentState* final = nullptr,
                            std::span<const std::int64_t> key_lengths = {},
                            std::span<const std::int32_t> positions = {}, const Memory& memory = {});

  /// The rows of the encoder for sources. The view lives until the next call.
  Memory encode(Context& context, const Encoder::Source& source);

  /// Σ −log p in nats over the targets that count, each predicted from the inputs up to its own (in an
  /// encoder from all of them); `nll` as in Heads. Sequences of more than `most_together` steps go through
  /// the layers in slices of so many, where the states of the layers have a fixed size.
  double loss(Context& context, const Pass& pass, std::span<float> nll = {});

  /// The same for steps of one token: ids and targets [batch · length].
  double loss(Context& context, std::span<const std::int32_t> ids, std::span<const std::int32_t> targets,
              std::int64_t batch, std::int64_t length, std::span<float> nll = {},
              std::span<const std::int64_t> key_lengths = {});

  /// Queries of all heads and passes so far whose denominator was not positive (linear attention).
  std::int64_t non_positive() const {
    return attention_.non_positive + cross_.non_positive + source_attention_.non_positive;
  }

  /// Queries, keys and values [batch, length, 3 · width] of the self-attention of block `layer`, 0 being the
  /// first, for the inputs ids [batch · length]: three parts of width, each by heads. The view lives until
  /// the next call; with rotary positions queries and keys are the rotated ones. Throws UsageError for a
  /// layer that the network does not have, and for one whose keys are its queries (lsh).
  View<const float> queries_keys_values(Context& context, std::span<const std::int32_t> ids,
                                        std::int64_t batch, std::int64_t length, std::int64_t layer,
                                        std::span<const std::int64_t> key_lengths = {});

  /// What the heads gave in the last `loss`, until the next call.
  const Heads& heads() const { return heads_; }

 private:
  static constexpr std::int64_t most_together = 1 << 16;

  /// What `forward` gives, of one entry after another and slice after slice, in `sliced_`.
  View<const float> forward_in_slices(Context& context, const Pass& pass);

  /// The residual stream [batch, length, width] as embedded.
  View<float> embed(Context& context, const StepInputs& inputs, std::int64_t batch, std::int64_t length,
                    std::int64_t position, std::span<const std::int32_t> positions = {});

  const Network& network_;
  Tensor hidden_, sliced_;
  SelfAttention::Saved attention_;
  std::int64_t reserved_batch_ = 0, reserved_length_ = 0;
  Tensor memory_;                          ///< rows of the encoder
  SelfAttention::Saved source_attention_;  ///< of the encoder's layers
  CrossAttention::Saved cross_;
  std::int64_t cross_rows_ = 0, memory_rows_ = 0;  ///< that the memory of the two is for
  NormalisedInputs inputs_;
  Heads heads_;
};

/// The recurrent form: one token for each of n streams at constant cost. Any number of
/// threads may step different slots of one state at once, each with its own context.
class RecurrentTransformer {
 public:
  /// Throws UsageError for a model whose steps see later ones.
  explicit RecurrentTransformer(const Network& network) : network_(network) {
    if (!network.config().causal()) network.config().check_generates();
  }

  /// parameters [n, head outputs] of the token (of its first field) that follows ids[i] in the stream of
  /// slots[i]; an empty view leaves the head out. Throws Error where an id or a stream's position is outside
  /// the model; nothing has moved then.
  void step(Context& context, View<float> parameters, std::span<const std::int32_t> ids,
            std::span<const std::int64_t> slots, RecurrentState& state) const;

  /// hidden [n, width], what the output heads take, for a step of inputs of each stream.
  void hidden(Context& context, View<float> hidden, const StepInputs& inputs,
              std::span<const std::int64_t> slots, RecurrentState& state) const;

 private:
  /// x [n, width] from the inputs through all blocks.
  void advance(Context& context, View<float> x, const StepInputs& inputs, std::span<const std::int64_t> slots,
               RecurrentState& state) const;

  const Network& network_;
};

}  // namespace linnet
