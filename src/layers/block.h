#pragma once

#include <optional>
#include <span>
#include <string>

#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "layers/self_attention.h"

namespace linnet {

/// Dropout of one training pass: the seed changes with every pass, the layer picks its own numbers from it.
struct Dropout {
  float rate = 0;
  std::uint64_t seed = 0;
};

/// One layer of a transformer: self-attention and feed-forward, each with a residual and a normalisation,
/// before it (x + f(norm x); Xiong et al. 2020) or after it (norm(x + f x); Vaswani et al. 2017).
class Block {
 public:
  struct Parts {
    SelfAttention::Parts attention;
    FeedForward::Parts feed_forward;
    bool norm_first = true;
    NormKind norm = NormKind::layer;
    int layer = 0;
  };

  Block(ParameterTable& table, const std::string& name, const Parts& parts);

  /// What `backward` needs of a forward pass. `inner` is what each norm made (norm first) or was given (norm
  /// after).
  struct Saved {
    Tensor inner1, middle, inner2;  ///< [batch · length, width]
    Tensor stats1, stats2;          ///< [batch · length, 2]
    SelfAttention::Saved attention;
    FeedForward::Saved feed_forward;
    void reserve(std::int64_t batch, std::int64_t length, const Parts& parts);
    /// Of the memory that `reserve` takes.
    static double floats_per_token(const Parts& parts);
  };

  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// y from x, [batch, length, width], for training from position 0. `key_lengths` and `positions` as in
  /// SelfAttention.
  void forward(Context& context, View<float> y, View<const float> x, Saved& saved, const Dropout& dropout,
               std::span<const std::int64_t> key_lengths = {},
               std::span<const std::int32_t> positions = {}) const;

  /// d becomes the gradient of x where it was that of y; gradients of parameters are added.
  void backward(Context& context, View<float> d, View<const float> x, const Saved& saved,
                const Dropout& dropout, std::span<float> gradients) const;

  /// x [batch, length, width] becomes the block's output; nothing is kept for a backward. Continues
  /// `initial`, leaves `final`, where given. `saved` is only memory.
  void apply(Context& context, View<float> x, SelfAttention::Saved& saved, std::int64_t position,
             const State* initial, State* final, std::span<const std::int64_t> key_lengths = {},
             std::span<const std::int32_t> positions = {}) const;

  /// x [n, width], one token a stream, becomes the block's output.
  void step(Context& context, View<float> x, State& state, std::span<const std::int64_t> slots) const;

  const SelfAttention& attention() const { return attention_; }
  const Parts& parts() const { return parts_; }

 private:
  /// The rows of one forward pass, [count, width]: x, what the attention with its norm passes on (middle), y,
  /// and between them `inner` as in Saved. Rows that no backward will read may share memory: middle with x
  /// and y, inner1 with inner2. Empty stats are not written.
  struct Rows {
    View<const float> x;
    View<float> inner1, middle, inner2, y;
    View<float> stats1, stats2;  ///< [count, 2]
  };

  /// The order of the norms and the branches, before or after: `attend` and `feed` take (to, from, residual)
  /// and leave f(from) + residual in `to`, f being self-attention and feed-forward.
  template <class Attend, class Feed>
  void pass(Context& context, const Rows& rows, const Attend& attend, const Feed& feed) const;

  /// x [rows, width] becomes the block's output; nothing is kept for a backward. `attend` as in `pass`.
  template <class Attend>
  void pass_in_place(Context& context, View<float> x, const Attend& attend) const;

  /// y = x + dropout(y), with numbers of their own for `part` 0 and 1 of the layer.
  void add_dropped(Context& context, View<float> y, View<const float> x, const Dropout& dropout,
                   int part) const;

  Parts parts_;
  Norm norm1_;
  SelfAttention attention_;
  Norm norm2_;
  FeedForward feed_forward_;
};

}  // namespace linnet
