#pragma once

#include "linnet/tensor.h"

namespace linnet {

/// The elementwise feature maps that have kernels.
enum class Elementwise { elu, relu, squared_relu, exp, identity };

/// y = φ(x) for tiles [rows, columns] that do not overlap; `alpha` serves elu.
void map_tile(Elementwise map, float alpha, View<float> y, View<const float> x);

/// dx = φ'(x) dy; dx may be dy.
void map_tile_backward(Elementwise map, float alpha, View<float> dx, View<const float> dy,
                       View<const float> x, View<const float> y);

}  // namespace linnet
