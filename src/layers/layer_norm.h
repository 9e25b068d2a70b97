#pragma once

#include <span>
#include <string>

#include "layers/parameters.h"

namespace linnet {

/// Layer normalisation with gain and bias (Ba et al. 2016), ε = 1e-5.
class LayerNorm {
 public:
  LayerNorm(ParameterTable& table, const std::string& name, std::int64_t width);

  /// Takes the parameters of the buffer, whose memory must stay.
  void pack(const ParameterValues& parameters);

  /// y [rows, width] from x; `stats` [rows, 2] receives what `backward` needs and may be empty.
  void forward(Context& context, View<float> y, View<float> stats, View<const float> x) const;

  /// dx is assigned, or added to where `add`; gradients of gain and bias are added.
  void backward(Context& context, View<float> dx, View<const float> dy, View<const float> x,
                View<const float> stats, std::span<float> gradients, bool add) const;

 private:
  ParameterPlace gain_;
  ParameterPlace bias_;
  View<const float> gain_values_;
  View<const float> bias_values_;
};

}  // namespace linnet
