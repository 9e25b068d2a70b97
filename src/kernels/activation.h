#pragma once

#include "kernels/dense.h"
#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// y = f(x) elementwise; gelu is the exact one, x·Φ(x). y may be x. Any shapes up to rank 2, outer strides
/// free.
void activation_forward(Context& context, View<float> y, View<const float> x, Activation activation);

/// dx = dy · f'(x). dx may be dy.
void activation_backward(Context& context, View<float> dx, View<const float> dy, View<const float> x,
                         Activation activation);

}  // namespace linnet::kernels
