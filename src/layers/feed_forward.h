#pragma once

#include <optional>
#include <span>
#include <string>

#include "layers/dense.h"
#include "linnet/context.h"

namespace linnet {

/// y = W₂ f(W₁ x + b₁) + b₂, row by row (Vaswani et al. 2017, equation 2, with any activation). With swiglu
/// y = W₂ (silu(W₁ x + b₁) · (V x + c)) + b₂ (Shazeer 2020, equation 6, with biases); V is NAME.gate.
class FeedForward {
 public:
  struct Parts {
    std::int64_t width = 0;
    std::int64_t hidden = 0;
    kernels::Activation activation = kernels::Activation::gelu;
    double output_deviation = 0;  ///< of the initial W₂
    bool rounded_input = false;   ///< whether training may give x as bf16
    bool rounded = false;         ///< whether what is [rows, hidden] is kept as bf16

    bool gated() const { return activation == kernels::Activation::swiglu; }
    /// Numbers of W₁, W₂ and V.
    double weights() const {
      return (gated() ? 3 : 2) * static_cast<double>(width) * static_cast<double>(hidden);
    }
  };

  FeedForward(ParameterTable& table, const std::string& name, const Parts& parts);

  /// The parts with what a layer of the table rounds.
  static Parts with_rounding(Parts parts, const ParameterTable& table);

  /// What `backward` needs of a forward pass, [rows, hidden] each, f32 or bf16.
  struct Saved {
    Tensor inner;  ///< W x + b of swiglu, the activation's derivative there of the others
    Tensor gate;   ///< V x + c, of swiglu alone
    Tensor after;
    void reserve(std::int64_t rows, const Parts& parts);
    /// Of the memory that `reserve` takes.
    static double floats_per_token(const Parts& parts) {
      return (parts.gated() ? 3 : parts.rounded ? 1 : 2) * static_cast<double>(parts.hidden);
    }
  };

  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// As in Dense.
  void unpack(std::span<float> parameters) const;

  /// y = feed-forward(x) + residual (which may be empty or y), [rows, width].
  void forward(Context& context, View<float> y, ConstFloatView x, View<const float> residual,
               Saved& saved) const;

  /// The same where no backward will follow.
  void apply(Context& context, View<float> y, View<const float> x, View<const float> residual) const;

  /// dx = gradient + residual, which may be empty, dx or dy; gradients of parameters are added.
  void backward(Context& context, View<float> dx, View<const float> dy, ConstFloatView x, const Saved& saved,
                std::span<float> gradients, View<const float> residual = {}) const;

  const Parts& parts() const { return parts_; }

 private:
  Parts parts_;
  Dense first_;
  std::optional<Dense> gate_;  // of swiglu
  Dense second_;
};

}  // namespace linnet
