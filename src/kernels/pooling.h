#pragma once

#include <cstdint>
#include <span>

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// y [batch, d] = mean of the first key_lengths[b] rows of x [batch, length, d], of all where `key_lengths`
/// is empty. Every length is at least 1.
void mean_rows(Context& context, View<float> y, View<const float> x,
               std::span<const std::int64_t> key_lengths);

/// dx [batch, length, d] is assigned the gradient; the rows behind the length are 0.
void mean_rows_backward(Context& context, View<float> dx, View<const float> dy,
                        std::span<const std::int64_t> key_lengths);

}  // namespace linnet::kernels
