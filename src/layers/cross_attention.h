#pragma once

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

/// The rows of an encoder that a decoder attends to.
struct Memory {
  View<const float> rows = {};  ///< [batch, source length, width]
  std::span<const std::int64_t> key_lengths =
      {};  ///< [batch] rows of each entry before its padding, or empty
};

/// Multi-head cross attention (Vaswani et al. 2017, section 3.2.3): queries from the decoder's rows, keys and
/// values from the encoder's with one product, an attention family that sees all of them, and the output
/// product. Positions are those that the rows hold: rotary ones turn nothing here.
class CrossAttention {
 public:
  struct Parts {
    std::int64_t width = 0;
    std::int64_t heads = 1;
    AttentionOptions attention;   ///< linear or softmax
    double output_deviation = 0;  ///< of the initial output weights
    std::string random_map = {};  ///< as in SelfAttention
    RandomFeatureOptions random = {};
  };

  CrossAttention(ParameterTable& table, const std::string& name, const Parts& parts);

  /// What `backward` needs of a forward pass.
  struct Saved {
    Tensor query;                   ///< [batch, length, width]
    Tensor key_value;               ///< [batch, source length, 2 · width]
    Tensor attended;                ///< [batch, length, width]
    Tensor normaliser;              ///< [batch, length, heads]
    std::int64_t non_positive = 0;  ///< as in SelfAttention
    void reserve(std::int64_t batch, std::int64_t length, std::int64_t source_length, const Parts& parts);
    /// Of the memory that `reserve` takes for a batch entry.
    static double floats(std::int64_t length, std::int64_t source_length, const Parts& parts);
  };

  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// As in SelfAttention.
  void redraw(std::span<float> parameters, std::uint64_t draw) const;

  /// y = attention(x, memory) + residual (which may be empty or y), x and y [batch, length, width].
  void forward(Context& context, View<float> y, View<const float> x, const Memory& memory,
               View<const float> residual, Saved& saved) const;

  /// dx = gradient + residual, which may be empty, dx or dy; to dmemory, of the shape of the memory's rows,
  /// and to the gradients of parameters theirs are added.
  void backward(Context& context, View<float> dx, View<float> dmemory, View<const float> dy,
                View<const float> x, const Memory& memory, const Saved& saved, std::span<float> gradients,
                View<const float> residual = {}) const;

  /// Leaves what `read` needs of the memory in the state, slot b that of entry b: sums of a fixed size in the
  /// linear family, keys and values in the softmax family.
  void summarise(Context& context, const Memory& memory, State& state) const;

  /// y = attention(x, what slot slots[i] holds) + residual, [n, width]; row i stands at positions[i].
  void read(Context& context, View<float> y, View<const float> x, View<const float> residual,
            const State& state, std::span<const std::int64_t> slots,
            std::span<const std::int64_t> positions) const;

  /// A state for `summarise`. `capacity` rows of the memory are reserved where the state grows with them.
  std::unique_ptr<State> make_state(std::int64_t slots, std::int64_t capacity) const;

  /// Floats of a slot of it.
  std::int64_t state_floats(std::int64_t capacity) const;

  const Parts& parts() const { return parts_; }

 private:
  HeadShape shape() const {
    const std::int64_t head_dim = parts_.width / parts_.heads;
    return {parts_.heads, head_dim, head_dim};
  }

  Parts parts_;
  Dense query_;
  Dense key_value_;
  Dense output_;
  std::optional<FeatureDraws> draws_;
  std::unique_ptr<Attention> attention_;
};

}  // namespace linnet
