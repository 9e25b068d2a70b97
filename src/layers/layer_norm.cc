#include "layers/layer_norm.h"

#include "kernels/normalisation.h"

namespace linnet {
namespace {
constexpr float epsilon = 1e-5f;
}

LayerNorm::LayerNorm(ParameterTable& table, const std::string& name, std::int64_t width)
    : gain_(table.add(name + ".weight", {width}, constant(1), false)),
      bias_(table.add(name + ".bias", {width}, constant(0), false)) {}

void LayerNorm::pack(const ParameterValues& parameters) {
  gain_values_ = parameters.of(gain_);
  bias_values_ = parameters.of(bias_);
}

void LayerNorm::forward(Context& context, View<float> y, View<float> stats, View<const float> x) const {
  kernels::layer_norm_forward(context, y, stats, x, gain_values_, bias_values_, epsilon);
}

void LayerNorm::backward(Context& context, View<float> dx, View<const float> dy, View<const float> x,
                         View<const float> stats, std::span<float> gradients, bool add) const {
  kernels::layer_norm_backward(context, dx, gain_.of(gradients), bias_.of(gradients), dy, x, stats,
                               gain_values_, add);
}

}  // namespace linnet
