#pragma once

#include "linnet/tensor.h"

namespace linnet {

/// The elementwise feature maps that have kernels.
enum class Elementwise { elu, relu, squared_relu, exp, identity };

/// What the inputs of exp are limited to: a product of two features is e^64 then, and sums of it over 1,024
/// features and 10^6 keys, times values up to 50, stay within f32, which ends at e^88.
inline constexpr float kMostExponent = 32.0f;

/// y = φ(x) for tiles [rows, columns] that do not overlap; `alpha` serves elu.
void map_tile(Elementwise map, float alpha, View<float> y, View<const float> x);

/// dx = φ'(x) dy; dx may be dy.
void map_tile_backward(Elementwise map, float alpha, View<float> dx, View<const float> dy,
                       View<const float> x, View<const float> y);

}  // namespace linnet
