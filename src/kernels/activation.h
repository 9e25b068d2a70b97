#pragma once

#include "kernels/dense.h"
#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// y = f(x) elementwise; gelu is the exact one, x·Φ(x), and swiglu stands for silu(x) = x·σ(x). y may be x.
/// Any shapes up to rank 2, outer strides free.
void activation_forward(Context& context, View<float> y, View<const float> x, Activation activation);

/// dx = dy · f'(x). dx may be dy.
void activation_backward(Context& context, View<float> dx, View<const float> dy, View<const float> x,
                         Activation activation);

/// y = silu(a) · b elementwise (Shazeer 2020, equation 6), shapes as above. y may be a or b.
void swiglu_forward(Context& context, View<float> y, View<const float> a, View<const float> b);

/// da = dy · b · silu'(a), db = dy · silu(a). da or db may be dy.
void swiglu_backward(Context& context, View<float> da, View<float> db, View<const float> dy,
                     View<const float> a, View<const float> b);

}  // namespace linnet::kernels
