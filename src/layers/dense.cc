#include "layers/dense.h"

#include <cmath>

namespace linnet {

Dense::Dense(ParameterTable& table, const std::string& name, std::int64_t inputs, std::int64_t outputs,
             const Parts& parts)
    : weight_(add_weights(table, name, {outputs, inputs}, parts)),
      has_bias_(parts.bias),
      packed_(inputs, outputs, parts.exact ? kernels::WeightType::f32 : table.product_type()) {
  add_bias(table, name, parts);
}

Dense::Dense(ParameterTable& table, const std::string& name, const ParameterPlace& weight, const Parts& parts)
    : weight_(weight),
      owns_weight_(false),
      has_bias_(parts.bias),
      packed_(weight.shape()[1], weight.shape()[0]) {
  add_bias(table, name, parts);
}

ParameterPlace Dense::add_weights(ParameterTable& table, const std::string& name, Shape shape,
                                  const Parts& parts) {
  const Initialiser initial =
      parts.weight_initial ? parts.weight_initial : normal(1 / std::sqrt(static_cast<double>(shape[1])));
  return table.add_weights(name + ".weight", std::move(shape), initial, parts.exact);
}

void Dense::add_bias(ParameterTable& table, const std::string& name, const Parts& parts) {
  if (has_bias_)
    bias_ =
        table.add(name + ".bias", {outputs()}, parts.bias_initial ? parts.bias_initial : constant(0), false);
}

void Dense::pack(Context& context, const ParameterValues& parameters, bool training) {
  const View<const float> weight = parameters.of(weight_);
  if (training && !packed_backward_) packed_backward_.emplace(outputs(), inputs(), packed_.type());
  if (training)
    kernels::PackedMatrix::pack_both(context, packed_, *packed_backward_, weight);
  else
    packed_.pack_transposed(context, weight);
  if (owns_weight_) parameters.release(weight_);
  if (has_bias_) bias_values_ = parameters.of(bias_);
}

void Dense::unpack(std::span<float> parameters) const {
  if (owns_weight_) packed_.unpack_transposed(weight_.of(parameters));
}

void Dense::forward(Context& context, FloatView y, ConstFloatView x, kernels::Activation activation,
                    View<const float> residual, FloatView slope) const {
  kernels::multiply(context, y, x, packed_, {bias_values_, activation, residual, slope});
}

void Dense::forward_through(Context& context, const Dense& second, View<float> y, View<const float> x,
                            kernels::Activation activation, View<const float> residual,
                            View<float> hidden) const {
  kernels::multiply_twice(context, y, x, packed_, {bias_values_, activation}, second.packed_,
                          {second.bias_values_, kernels::Activation::none, residual}, hidden);
}

void Dense::backward(Context& context, FloatView dx, ConstFloatView dy, ConstFloatView x,
                     std::span<float> gradients, ConstFloatView slope, View<const float> residual) const {
  kernels::accumulate_weight_gradient(context, weight_.of(gradients),
                                      has_bias_ ? bias_.of(gradients) : View<float>(), dy, x, packed_.type());
  if (dx.rank() != 0)
    kernels::multiply(context, dx, dy, *packed_backward_, {.residual = residual, .factor = slope});
}

}  // namespace linnet
