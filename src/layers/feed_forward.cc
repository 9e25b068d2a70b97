#include "layers/feed_forward.h"

#include "base/workspace.h"
#include "kernels/activation.h"
#include "kernels/elementwise.h"

namespace linnet {

FeedForward::FeedForward(ParameterTable& table, const std::string& name, const Parts& parts)
    : parts_(parts),
      first_(table, name + ".first", parts.width, parts.hidden),
      second_(table, name + ".second", parts.hidden, parts.width,
              {.bias = true, .weight_initial = normal(parts.output_deviation), .bias_initial = {}}) {
  if (parts.gated()) gate_.emplace(table, name + ".gate", parts.width, parts.hidden);
}

void FeedForward::Saved::reserve(std::int64_t rows, const Parts& parts) {
  inner = Tensor::of<float>({rows, parts.hidden});
  after = Tensor::of<float>({rows, parts.hidden});
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

void FeedForward::forward(Context& context, View<float> y, View<const float> x, View<const float> residual,
                          Saved& saved) const {
  const View<float> inner = saved.inner.view<float>().slice(0, 0, x.extent(0));
  const View<float> after = saved.after.view<float>().slice(0, 0, x.extent(0));
  if (gate_) {
    first_.forward(context, inner, x);
    const View<float> gate = saved.gate.view<float>().slice(0, 0, x.extent(0));
    gate_->forward(context, gate, x);
    kernels::swiglu_forward(context, after, inner, gate);
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

void FeedForward::backward(Context& context, View<float> dx, View<const float> dy, View<const float> x,
                           const Saved& saved, std::span<float> gradients) const {
  const auto part = [&](const Tensor& tensor) { return tensor.view<float>().slice(0, 0, x.extent(0)); };
  Workspace workspace(context);
  const View<float> hidden = workspace.take(x.extent(0), parts_.hidden);
  if (!gate_) {
    second_.backward(context, hidden, dy, part(saved.after), gradients, part(saved.inner));
    first_.backward(context, dx, hidden, x, gradients);
    return;
  }
  second_.backward(context, hidden, dy, part(saved.after), gradients);
  const View<float> gate = workspace.take(x.extent(0), parts_.hidden);
  kernels::swiglu_backward(context, hidden, gate, hidden, part(saved.inner), part(saved.gate));
  const View<float> through_gate = workspace.take(x.extent(0), parts_.width);
  gate_->backward(context, through_gate, gate, x, gradients);
  first_.backward(context, dx, hidden, x, gradients);
  kernels::add(context, dx, dx, through_gate);
}

}  // namespace linnet
