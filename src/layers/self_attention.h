#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/family.h"
#include "layers/dense.h"
#include "layers/feature_draws.h"
#include "linnet/context.h"

namespace linnet {

/// Processes that hold the stretches of longer sequences, one each.
class StretchExchange {
 public:
  virtual ~StretchExchange() = default;

  /// Leaves in `earlier` the combination of `earlier` and `later`, in this order; an associative operation.
  using Combine = std::function<void(std::span<std::byte> earlier, std::span<const std::byte> later)>;

  /// Replaces the bytes by the combination of those of all stretches before this one, the first one first, or
  /// backwards of all behind it, the last one first. False, and unchanged, where there are none.
  virtual bool exclusive_scan(std::span<std::byte> bytes, const Combine& combine, bool backwards) = 0;
};

/// The part of longer sequences that a pass holds. The states carry them from part to part, and with the
/// gradients of the states a loss goes back to the parts before.
struct SequencePart {
  std::int64_t position = 0;       ///< of the first token in its sequence
  const State* initial = nullptr;  ///< what the tokens before have left, a slot for each entry of the batch
  State* final = nullptr;          ///< assigned: what the tokens up to the last one leave
  View<float> initial_gradient = {};      ///< [batch, G] assigned by `backward`, as in AttentionGradients
  View<const float> final_gradient = {};  ///< [batch, G] read by `backward`
  /// Where other processes hold the rest of the sequences: they find out the initial state and the gradient
  /// of the final one, which are not given then. For the linear family, causal or not.
  StretchExchange* exchange = nullptr;
};

/// Multi-head self-attention: queries, keys and values from one product, an attention family, and the output
/// product. width = heads · head size. Causal, or bidirectional, which has no recurrent form. Where a family
/// takes the queries as keys (lsh), the product makes these and the values alone. With rotary positions
/// (Su et al. 2021) queries and keys are rotated before the family, and so its feature map, sees them.
class SelfAttention {
 public:
  /// Linformer's projections.
  struct Projections {
    std::int64_t rank = 0;    ///< k
    std::int64_t length = 0;  ///< N, tokens of an input at most
    ProjectionSharing sharing = ProjectionSharing::none;
    const ParameterPlace* owned = nullptr;  ///< the first layer's, null in itself; layerwise takes it
  };

  struct Parts {
    std::int64_t width = 0;
    std::int64_t heads = 1;
    AttentionOptions attention;
    bool causal = true;  ///< whether a position sees those up to itself alone
    Decay decay = Decay::none;
    std::vector<float> initial_decay = {};  ///< γ [heads], unless there is none
    double output_deviation = 0;            ///< of the initial output weights
    Projections projections = {};           ///< of the linformer family
    std::string random_map = {};            ///< name of a random feature map, or empty
    RandomFeatureOptions random = {};       ///< how it is drawn; the layer comes from `attention`
    bool rotary = false;                    ///< needs an even head size
    bool rounded_input = false;             ///< whether training may give x as bf16
    bool rounded = false;                   ///< whether training keeps what its products read as bf16

    /// Numbers a token that the first product makes: query, key and value, or query and value.
    std::int64_t projected() const { return (info_of(attention.family).keys_are_queries ? 2 : 3) * width; }
  };

  SelfAttention(ParameterTable& table, const std::string& name, const Parts& parts);

  /// The parts with what a layer of the table rounds.
  static Parts with_rounding(Parts parts, const ParameterTable& table);

  /// What `backward` needs of a forward pass. The attention computes from qkv and attended as they are kept,
  /// both f32 or both bf16. Layers of other families may use it one after another where it is reserved for
  /// the one with the most `floats_per_token`.
  struct Saved {
    Tensor qkv;         ///< [batch, length, projected], queries and keys rotated where positions are rotary
    Tensor attended;    ///< [batch, length, width]
    Tensor normaliser;  ///< [batch, length, heads]
    std::vector<std::int64_t> key_lengths, positions;
    std::int64_t first_position = 0;
    /// Of a stretch: what the tokens before it leave (those on both sides, where attention is not causal),
    /// and what its own tokens leave alone.
    std::unique_ptr<State> before, own;
    std::int64_t non_positive = 0;  ///< queries of all forward passes whose denominator was not positive
    void reserve(std::int64_t batch, std::int64_t length, const Parts& parts);
    /// Of the memory that `reserve` takes.
    static double floats_per_token(const Parts& parts) {
      const auto products = static_cast<double>(parts.projected() + parts.width);
      return (parts.rounded ? products / 2 : products) + static_cast<double>(parts.heads);
    }
  };

  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// Draws random features anew, for the `draw`-th time; no other parameters change.
  void redraw(std::span<float> parameters, std::uint64_t draw) const;

  /// y = attention(x) + residual (which may be empty or y), x and y [batch, length, width]. `key_lengths`
  /// [batch], where not empty, are the tokens of each entry; those behind are padding, which no other
  /// position sees. `positions` [batch · length], where not empty, are those of the tokens in their
  /// sequences: where one is 0 a sequence begins, which no token before sees and which sees none of them.
  void forward(Context& context, View<float> y, ConstFloatView x, View<const float> residual, Saved& saved,
               const SequencePart& part = {}, std::span<const std::int64_t> key_lengths = {},
               std::span<const std::int32_t> positions = {}) const;

  /// dx = gradient + residual, which may be empty, dx or dy; gradients of parameters are added. The initial
  /// state is as `forward` met it.
  void backward(Context& context, View<float> dx, View<const float> dy, ConstFloatView x, const Saved& saved,
                std::span<float> gradients, View<const float> residual = {},
                const SequencePart& part = {}) const;

  /// One token for each of n streams: y = attention(x) + residual, [n, width].
  void step(Context& context, View<float> y, View<const float> x, View<const float> residual, State& state,
            std::span<const std::int64_t> slots) const;

  std::unique_ptr<State> make_state(std::int64_t slots, std::int64_t capacity) const;

  /// Floats of a slot of it.
  std::int64_t state_floats(std::int64_t capacity) const;
  const Parts& parts() const { return parts_; }

  /// γ [heads] as last packed, or nothing.
  View<const float> decay() const;

  /// E, which layers behind may share; null for other families than linformer.
  const ParameterPlace* projection() const { return key_projection_ ? &*key_projection_ : nullptr; }

 private:
  /// Where key and value stand behind the query among the parts that are `width` numbers each.
  int key_part() const { return info_of(parts_.attention.family).keys_are_queries ? 0 : 1; }
  int value_part() const { return key_part() + 1; }

  /// One part of [batch, length, projected], by heads.
  template <class Byte>
  BasicFloatView<Byte> part(BasicFloatView<Byte> qkv, int index) const;

  /// Queries and keys of [batch, length, projected], as heads.
  View<float> queries_and_keys(View<float> qkv) const;

  /// The same, [batch · length, heads, head size], of dense qkv.
  View<float> rows_of_queries_and_keys(View<float> qkv) const;

  /// Rotates those of one token a stream, qkv [n, projected], whose slots stand where `state` says.
  void rotate_step(Context& context, View<float> qkv, const State& state,
                   std::span<const std::int64_t> slots) const;

  /// With the mask that `saved` describes.
  AttentionInputs inputs(ConstFloatView qkv, const Saved& saved, const State* initial) const;

  /// Of a stretch: `saved.before` from the keys and values of all of them.
  void find_state_before(Context& context, ConstFloatView qkv, Saved& saved, StretchExchange& exchange) const;

  /// Of a stretch: the gradient [batch, G] of the state that its tokens leave, as those of the other
  /// stretches give it; false where no other one depends on it.
  bool find_final_gradient(Context& context, View<float> gradient, ConstFloatView dattended,
                           ConstFloatView attended, View<const float> normaliser, ConstFloatView qkv,
                           const Saved& saved, StretchExchange& exchange) const;
  void add_projections(ParameterTable& table, const std::string& name);

  Parts parts_;
  Dense qkv_;
  Dense output_;
  std::optional<ParameterPlace> decay_logit_;                        // w [heads]
  std::vector<float> decay_;                                         // γ
  std::vector<float> decay_slope_;                                   // dγ/dw, where w is learned
  std::optional<ParameterPlace> key_projection_, value_projection_;  // the same one where it is shared
  View<const float> key_projection_values_, value_projection_values_;
  std::optional<FeatureDraws> draws_;
  std::vector<std::uint64_t> frequencies_;  // of rotary positions; empty for others
  std::unique_ptr<Attention> attention_;
};

}  // namespace linnet
