#pragma once

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// Layer normalisation (Ba et al. 2016): y = (x − mean) / √(variance + epsilon) · gain + bias over the last
/// dimension of x [rows, d]; y may be bf16, or x's memory. `stats` [rows, 2] receives mean and 1/√(variance +
/// epsilon); it may be empty.
void layer_norm_forward(Context& context, FloatView y, View<float> stats, View<const float> x,
                        View<const float> gain, View<const float> bias, float epsilon);

/// dx [rows, d] (assigned, or added to where `add`), dgain [d] and dbias [d] (added to) from dy, with x and
/// stats of `forward`. dx may be dy unless `add`. The sums over rows are taken over fixed blocks, in order.
void layer_norm_backward(Context& context, View<float> dx, View<float> dgain, View<float> dbias,
                         View<const float> dy, View<const float> x, View<const float> stats,
                         View<const float> gain, bool add);

/// Normalisation by the root mean square (Zhang and Sennrich 2019, equation 4): y = x / √(mean of x² +
/// epsilon) · gain over the last dimension of x [rows, d]; y may be bf16, or x's memory. The first column of
/// `stats` [rows, 1 or more] receives 1/√(mean of x² + epsilon); `stats` may be empty.
void rms_norm_forward(Context& context, FloatView y, View<float> stats, View<const float> x,
                      View<const float> gain, float epsilon);

/// As layer_norm_backward, without a bias.
void rms_norm_backward(Context& context, View<float> dx, View<float> dgain, View<const float> dy,
                       View<const float> x, View<const float> stats, View<const float> gain, bool add);

}  // namespace linnet::kernels
