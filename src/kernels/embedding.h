#pragma once

#include <cstdint>
#include <span>

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// y [rows, d] = table[ids[row]]; table [n, d], every id in 0 … n − 1 (the caller checks).
void embedding_forward(Context& context, View<float> y, View<const float> table,
                       std::span<const std::int32_t> ids);

/// dtable[ids[row]] += dy[row], rows in order.
void embedding_backward(Context& context, View<float> dtable, View<const float> dy,
                        std::span<const std::int32_t> ids);

/// y [batch, length, d] += rows [length, d] for every batch entry.
void add_rows(Context& context, View<float> y, View<const float> rows);

/// drows [length, d] += sum of dy [batch, length, d] over the batch, in order.
void add_rows_backward(Context& context, View<float> drows, View<const float> dy);

/// Sinusoidal positions (Vaswani et al. 2017, section 3.5): row i holds, for position first + i, sin(p /
/// 10000^(2j/d)) at 2j and the cosine at 2j + 1. Angles are reduced in f64, so that positions up to 2^40 keep
/// f32 accuracy.
void sinusoidal_positions(Context& context, View<float> rows, std::int64_t first);

}  // namespace linnet::kernels
