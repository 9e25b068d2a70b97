#pragma once

#include <optional>
#include <span>
#include <string>

#include "kernels/dense.h"
#include "layers/parameters.h"

namespace linnet {

/// y = x Wᵀ + b, with W [outputs, inputs] and b [outputs].
class Dense {
 public:
  struct Parts {
    bool bias = true;
    Initialiser weight_initial;  ///< by default N(0, 1 / inputs)
    Initialiser bias_initial;    ///< by default 0
    bool exact = false;          ///< f32 weights, whatever the table's type
  };

  Dense(ParameterTable& table, const std::string& name, std::int64_t inputs, std::int64_t outputs)
      : Dense(table, name, inputs, outputs, Parts{}) {}
  Dense(ParameterTable& table, const std::string& name, std::int64_t inputs, std::int64_t outputs,
        const Parts& parts);

  /// With a weight that another layer owns, in f32: a tied output. Gradients are added to that layer's.
  Dense(ParameterTable& table, const std::string& name, const ParameterPlace& weight, const Parts& parts);

  /// Takes the parameters, whose memory must stay, but for the weight, which is released; `training` also
  /// packs what `backward` needs.
  void pack(Context& context, const ParameterValues& parameters, bool training);

  /// Writes the weight as it was packed to its place in the buffer; nothing where another layer owns it.
  void unpack(std::span<float> parameters) const;

  /// Whether products and gradients of such a layer of the table round what they read, so that it can be kept
  /// as bf16.
  static bool reads_rounded(const ParameterTable& table, std::int64_t inputs, std::int64_t outputs) {
    return kernels::reads_rounded(table.product_type(), outputs, inputs);
  }

  /// y [rows, outputs] from x [rows, inputs]; activation, residual and `slope` as in kernels::Epilogue, bf16
  /// as in kernels::multiply.
  void forward(Context& context, FloatView y, ConstFloatView x,
               kernels::Activation activation = kernels::Activation::none, View<const float> residual = {},
               FloatView slope = {}) const;

  /// y = second(activation(this(x))) + residual; `hidden` [rows, outputs] as in kernels::multiply_twice.
  void forward_through(Context& context, const Dense& second, View<float> y, View<const float> x,
                       kernels::Activation activation, View<const float> residual, View<float> hidden) const;

  /// dx [rows, inputs] is assigned (an empty one is left out); gradients of W and b are added. Where x is an
  /// activation's output and `slope` its derivative, dx is the gradient of the activation's input. `residual`
  /// is added to dx and may be dx itself, or dy.
  void backward(Context& context, FloatView dx, ConstFloatView dy, ConstFloatView x,
                std::span<float> gradients, ConstFloatView slope = {}, View<const float> residual = {}) const;

  std::int64_t inputs() const { return packed_.inputs(); }
  std::int64_t outputs() const { return packed_.outputs(); }

 private:
  static ParameterPlace add_weights(ParameterTable& table, const std::string& name, Shape shape,
                                    const Parts& parts);
  void add_bias(ParameterTable& table, const std::string& name, const Parts& parts);

  ParameterPlace weight_;
  ParameterPlace bias_;
  bool owns_weight_ = true;
  bool has_bias_;
  View<const float> bias_values_;
  kernels::PackedMatrix packed_;
  std::optional<kernels::PackedMatrix> packed_backward_;  // Wᵀ, where a backward is wanted
};

}  // namespace linnet
