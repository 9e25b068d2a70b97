#pragma once

#include <span>
#include <string>

#include "layers/cross_attention.h"
#include "layers/dropout.h"
#include "layers/norm.h"

namespace linnet {

/// The third branch of a decoder's layer, between its self-attention and its feed-forward: cross attention
/// with a residual and a normalisation, before it (x + f(norm x)) or after it (norm(x + f x)).
class CrossBranch {
 public:
  struct Parts {
    CrossAttention::Parts attention;
    bool norm_first = true;
    NormKind norm = NormKind::layer;
    int layer = 0;  ///< decides the numbers of its dropout
  };

  CrossBranch(ParameterTable& table, const std::string& name, const Parts& parts);

  /// What `backward` needs of a forward pass. `inner` is what the norm made (norm first) or was given (norm
  /// after).
  struct Saved {
    Tensor inner, out;  ///< [batch · length, width]; out is the branch's output
    Tensor stats;       ///< [batch · length, 2]
    CrossAttention::Saved attention;
    void reserve(std::int64_t batch, std::int64_t length, std::int64_t source_length, const Parts& parts);
    /// Of the memory that `reserve` takes for a batch entry.
    static double floats(std::int64_t length, std::int64_t source_length, const Parts& parts);
  };

  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// The output, [batch · length, width], which lies in `saved`, from x [batch, length, width].
  View<float> forward(Context& context, View<const float> x, const Memory& memory, Saved& saved,
                      const Dropout& dropout) const;

  /// d becomes the gradient of x where it was that of the output; to dmemory and the gradients of parameters
  /// theirs are added.
  void backward(Context& context, View<float> d, View<float> dmemory, View<const float> x,
                const Memory& memory, const Saved& saved, const Dropout& dropout,
                std::span<float> gradients) const;

  /// x [batch, length, width] becomes the output; nothing is kept for a backward. `saved` is only memory.
  void apply(Context& context, View<float> x, const Memory& memory, CrossAttention::Saved& saved) const;

  /// x [n, width] becomes the output, from what the slots hold, as in CrossAttention::read.
  void read(Context& context, View<float> x, const State& state, std::span<const std::int64_t> slots,
            std::span<const std::int64_t> positions) const;

  const CrossAttention& attention() const { return attention_; }
  const Parts& parts() const { return parts_; }

 private:
  /// The order of norm and attention: `attend` takes (to, from, residual), all [rows, width]. `inner` may be
  /// y and y may be x.
  template <class Attend>
  void pass(Context& context, View<float> y, View<const float> x, View<float> inner, View<float> stats,
            const Attend& attend) const;

  Parts parts_;
  Norm norm_;
  CrossAttention attention_;
};

}  // namespace linnet
