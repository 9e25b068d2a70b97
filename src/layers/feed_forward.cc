#include "layers/feed_forward.h"

#include "base/workspace.h"
#include "kernels/activation.h"

namespace linnet {

FeedForward::FeedForward(ParameterTable& table, const std::string& name, const Parts& parts)
    : parts_(with_rounding(parts, table)),
      first_(table, name + ".first", parts.width, parts.hidden),
      second_(table, name + ".second", parts.hidden, parts.width,
              {.bias = true, .weight_initial = normal(parts.output_deviation), .bias_initial = {}}) {
  if (parts.gated()) gate_.emplace(table, name + ".gate", parts.width, parts.hidden);
}

FeedForward::Parts FeedForward::with_rounding(Parts parts, const ParameterTable& table) {
  parts.rounded_input = Dense::reads_rounded(table, parts.width, parts.hidden);
  parts.rounded =
      !parts.gated() && parts.rounded_input && Dense::reads_rounded(table, parts.hidden, parts.width);
  return parts;
}

void FeedForward::Saved::reserve(std::int64_t rows, const Parts& parts) {
  for (Tensor* tensor : {&inner, &after})
    *tensor = Tensor(parts.rounded ? DType::bf16 : DType::f32, {rows, parts.hidden});
  if (parts.gated()) gate = Tensor::of<float>({rows, parts.hidden});
}

void FeedForward::pack(Context& context, const ParameterValues& parameters, bool training) {
  first_.pack(context, parameters, training);
  if (gate_) gate_->pack(context, parameters, training);
  second_.pack(context, parameters, training);
}

void FeedForward::unpack(std::span<float> parameters) const {
  first_.unpack(parameters);
  if (gate_) gate_->unpack(parameters);
  second_.unpack(parameters);
}

void FeedForward::forward(Context& context, View<float> y, ConstFloatView x, View<const float> residual,
                          Saved& saved) const {
  const auto part = [&](Tensor& tensor) { return tensor.float_view().slice(0, 0, x.extent(0)); };
  const FloatView inner = part(saved.inner), after = part(saved.after);
  if (gate_) {
    const FloatView gate = part(saved.gate);
    first_.forward(context, inner, x);
    gate_->forward(context, gate, x);
    kernels::swiglu_forward(context, after.as<float>(), inner.as<float>(), gate.as<float>());
  } else {
    first_.forward(context, after, x, parts_.activation, {}, inner);
  }
  second_.forward(context, y, after, kernels::Activation::none, residual);
}

void FeedForward::apply(Context& context, View<float> y, View<const float> x,
                        View<const float> residual) const {
  Workspace workspace(context);
  const View<float> hidden = workspace.take(x.extent(0), parts_.hidden);
  if (!gate_) {
    first_.forward_through(context, second_, y, x, parts_.activation, residual, hidden);
    return;
  }
  const View<float> gate = workspace.take(x.extent(0), parts_.hidden);
  first_.forward(context, hidden, x);
  gate_->forward(context, gate, x);
  kernels::swiglu_forward(context, hidden, hidden, gate);
  second_.forward(context, y, hidden, kernels::Activation::none, residual);
}

void FeedForward::backward(Context& context, View<float> dx, View<const float> dy, ConstFloatView x,
                           const Saved& saved, std::span<float> gradients, View<const float> residual) const {
  const auto part = [&](const Tensor& tensor) { return tensor.float_view().slice(0, 0, x.extent(0)); };
  Workspace workspace(context);
  if (!gate_) {
    const FloatView hidden = workspace.take_floats(saved.after.dtype(), x.extent(0), parts_.hidden);
    second_.backward(context, hidden, dy, part(saved.after), gradients, part(saved.inner));
    first_.backward(context, dx, hidden, x, gradients, {}, residual);
    return;
  }
  const View<float> hidden = workspace.take(x.extent(0), parts_.hidden);
  second_.backward(context, hidden, dy, part(saved.after), gradients);
  const View<float> gate = workspace.take(x.extent(0), parts_.hidden);
  kernels::swiglu_backward(context, hidden, gate, hidden, part(saved.inner).as<const float>(),
                           part(saved.gate).as<const float>());
  gate_->backward(context, dx, gate, x, gradients, {}, residual);
  first_.backward(context, dx, hidden, x, gradients, {}, dx);
}

}  // namespace linnet
