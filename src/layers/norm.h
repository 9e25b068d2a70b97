#pragma once

#include <optional>
#include <span>
#include <string>

#include "layers/parameters.h"
#include "linnet/layer_types.h"

namespace linnet {

/// Normalisation of rows: layer normalisation with gain and bias (Ba et al. 2016), or by the root mean square
/// with a gain alone (Zhang and Sennrich 2019). ε = 1e-5 in both.
class Norm {
 public:
  Norm(ParameterTable& table, const std::string& name, std::int64_t width, NormKind kind = NormKind::layer);

  /// Takes the parameters of the buffer, whose memory must stay.
  void pack(const ParameterValues& parameters);

  /// y [rows, width], f32 or bf16, from x, whose memory it may be; `stats` [rows, 2] receives what `backward`
  /// needs and may be empty.
  void forward(Context& context, FloatView y, View<float> stats, View<const float> x) const;

  /// dx is assigned, or added to where `add`; gradients of gain and bias are added.
  void backward(Context& context, View<float> dx, View<const float> dy, View<const float> x,
                View<const float> stats, std::span<float> gradients, bool add) const;

 private:
  ParameterPlace gain_;
  std::optional<ParameterPlace> bias_;  ///< of layer normalisation
  View<const float> gain_values_;
  View<const float> bias_values_;
};

}  // namespace linnet
