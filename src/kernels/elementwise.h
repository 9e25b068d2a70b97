#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"
#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// y = a + b, rank up to 2, outer strides free; y may be a or b.
void add(Context& context, View<float> y, View<const float> a, View<const float> b);

/// y = x · keep / (1 − rate), keep drawn for element i of the dense x from random.bits(i): zero with
/// probability `rate`. The same call on a gradient is the backward. y may be x. 0 ≤ rate < 1.
void dropout(Context& context, View<float> y, View<const float> x, float rate, const Random& random);

/// y = 0.
void set_zero(Context& context, std::span<float> y);

/// y ·= factor.
void scale(Context& context, std::span<float> y, float factor);

/// Sum of squares in f64, over fixed blocks in order.
double sum_of_squares(Context& context, std::span<const float> x);

}  // namespace linnet::kernels
