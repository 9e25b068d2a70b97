#include "layers/norm.h"

#include "kernels/normalisation.h"

namespace linnet {
namespace {
constexpr float epsilon = 1e-5f;
}

Norm::Norm(ParameterTable& table, const std::string& name, std::int64_t width, NormKind kind)
    : gain_(table.add(name + ".weight", {width}, constant(1), false)) {
  if (kind == NormKind::layer) bias_ = table.add(name + ".bias", {width}, constant(0), false);
}

void Norm::pack(const ParameterValues& parameters) {
  gain_values_ = parameters.of(gain_);
  if (bias_) bias_values_ = parameters.of(*bias_);
}

void Norm::forward(Context& context, FloatView y, View<float> stats, View<const float> x) const {
  if (bias_)
    kernels::layer_norm_forward(context, y, stats, x, gain_values_, bias_values_, epsilon);
  else
    kernels::rms_norm_forward(context, y, stats, x, gain_values_, epsilon);
}

void Norm::backward(Context& context, View<float> dx, View<const float> dy, View<const float> x,
                    View<const float> stats, std::span<float> gradients, bool add) const {
  const View<float> dgain = gain_.of(gradients);
  if (bias_)
    kernels::layer_norm_backward(context, dx, dgain, bias_->of(gradients), dy, x, stats, gain_values_, add);
  else
    kernels::rms_norm_backward(context, dx, dgain, dy, x, stats, gain_values_, add);
}

}  // namespace linnet
