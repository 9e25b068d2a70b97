#pragma once

#include <optional>
#include <span>
#include <string>

#include "layers/cross_branch.h"
#include "layers/dropout.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "layers/self_attention.h"

namespace linnet {

/// What the cross attention of a decoder's block reads where no backward follows: the rows of the encoder,
/// with memory for the pass, or what slot b of a state holds for entry b.
struct CrossInput {
  Memory memory = {};
  CrossAttention::Saved* saved = nullptr;
  const State* summary = nullptr;
};

/// One layer of a transformer: self-attention and feed-forward, each with a residual and a normalisation,
/// before it (x + f(norm x); Xiong et al. 2020) or after it (norm(x + f x); Vaswani et al. 2017). The layers
/// of a decoder that has an encoder attend to its rows between the two (CrossBranch).
class Block {
 public:
  struct Parts {
    SelfAttention::Parts attention;
    FeedForward::Parts feed_forward;
    bool norm_first = true;
    NormKind norm = NormKind::layer;
    int layer = 0;
    std::optional<CrossBranch::Parts> cross = {};
  };

  Block(ParameterTable& table, const std::string& name, const Parts& parts);

  /// What `backward` needs of a forward pass. `inner` is what each norm made (norm first; bf16 where the
  /// branch may be given that) or was given (norm after).
  struct Saved {
    Tensor inner1, middle, inner2;  ///< [batch · length, width]
    Tensor stats1, stats2;          ///< [batch · length, 2]
    SelfAttention::Saved attention;
    FeedForward::Saved feed_forward;
    CrossBranch::Saved cross;
    void reserve(std::int64_t batch, std::int64_t length, const Parts& parts, std::int64_t source_length = 0);
    /// Of the memory that `reserve` takes, without the cross attention's.
    static double floats_per_token(const Parts& parts);
    /// The same of a block that the table would make of the parts.
    static double floats_per_token(Parts parts, const ParameterTable& table);
  };

  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// y from x, [batch, length, width], for training. `key_lengths` and `positions` as in SelfAttention;
  /// `memory` is that of a block with cross attention.
  void forward(Context& context, View<float> y, View<const float> x, Saved& saved, const Dropout& dropout,
               std::span<const std::int64_t> key_lengths = {}, std::span<const std::int32_t> positions = {},
               const Memory& memory = {}, const SequencePart& part = {}) const;

  /// d becomes the gradient of x where it was that of y; gradients of parameters are added, and to `dmemory`
  /// that of the memory's rows.
  void backward(Context& context, View<float> d, View<const float> x, const Saved& saved,
                const Dropout& dropout, std::span<float> gradients, const Memory& memory = {},
                View<float> dmemory = {}, const SequencePart& part = {}) const;

  /// x [batch, length, width] becomes the block's output; nothing is kept for a backward. `saved` is only
  /// memory.
  void apply(Context& context, View<float> x, SelfAttention::Saved& saved, const SequencePart& part = {},
             std::span<const std::int64_t> key_lengths = {}, std::span<const std::int32_t> positions = {},
             const CrossInput& cross = {}) const;

  /// x [n, width], one token a stream, becomes the block's output. `summary` is what the cross attention
  /// reads.
  void step(Context& context, View<float> x, State& state, std::span<const std::int64_t> slots,
            const State* summary = nullptr) const;

  const SelfAttention& attention() const { return attention_; }
  /// The cross attention; null in a block without.
  const CrossBranch* cross() const { return cross_ ? &*cross_ : nullptr; }
  const Parts& parts() const { return parts_; }

 private:
  /// The rows of one forward pass, [count, width]: x, what the attention with its norm passes on (middle), y,
  /// and between them `inner` as in Saved. Rows that no backward will read may share memory: middle with x
  /// and y, inner1 with inner2. Empty stats are not written.
  struct Rows {
    View<const float> x;
    FloatView inner1;
    View<float> middle;
    FloatView inner2;
    View<float> y;
    View<float> stats1, stats2;  ///< [count, 2]
  };

  /// The parts with what the branches of a block of the table round.
  static Parts with_rounding(Parts parts, const ParameterTable& table);

  /// The order of the norms and the branches, before or after: `attend` and `feed` take (to, from, residual)
  /// and leave f(from) + residual in `to`, f being self-attention and feed-forward. `cross` takes the rows
  /// between them and gives those behind the cross attention.
  template <class Attend, class Cross, class Feed>
  void pass(Context& context, const Rows& rows, const Attend& attend, const Cross& cross,
            const Feed& feed) const;

  /// x [rows, width] becomes the block's output; nothing is kept for a backward. `attend` as in `pass`,
  /// `cross` changes the rows that it is given.
  template <class Attend, class Cross>
  void pass_in_place(Context& context, View<float> x, const Attend& attend, const Cross& cross) const;

  /// y = x + dropout(y), with numbers of their own for `part` 0 and 1 of the layer.
  void add_dropped(Context& context, View<float> y, View<const float> x, const Dropout& dropout,
                   int part) const;

  Parts parts_;
  Norm norm1_;
  SelfAttention attention_;
  std::optional<CrossBranch> cross_;
  Norm norm2_;
  FeedForward feed_forward_;
};

}  // namespace linnet
