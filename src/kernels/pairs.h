#pragma once

#include <cstdint>

#include "linnet/tensor.h"

namespace linnet::kernels {

// Laying out matrices of f32, which are rounded, or of bf16 in the two ways in which products of bf16 take
// them: the right factor in panels of 64 columns (NarrowLayout), where the numbers of rows 2k and 2k + 1
// stand side by side, the left factor row after row, or as columns of such panels.

/// Rows that are laid out at once.
inline constexpr std::int64_t pair_band = 32;

/// Rows [begin, begin + 32) of panels that are `padded` rows apart = those rows of b [rows, columns]; missing
/// columns and rows are zero. `begin` and `padded` are multiples of 32. `sums` [columns], if not null,
/// receives the sums of those rows, unrounded.
void pack_pairs(bf16* panels, std::int64_t padded, ConstFloatView b, std::int64_t begin,
                float* sums = nullptr);

/// A panel of bᵀ of f32: columns are the rows [begin, begin + 64) of w. `memory` is room for 64 · padded
/// bf16.
void pack_pairs_transposed(bf16* panel, View<const float> w, std::int64_t begin, std::int64_t padded,
                           bf16* memory);

/// Where this machine multiplies pairs, to[j · stride + i] = b[i, j] of b [rows, columns], for rows i of
/// [begin, end), at most 32; those that are missing are zero. `begin`, `end` and `stride` are even. `memory`
/// is room for 32 rows of whole panels of 64 columns. `sums` [columns], if not null, receives the sums of
/// those rows, unrounded.
void transpose_pairs(bf16* to, std::int64_t stride, ConstFloatView b, std::int64_t begin, std::int64_t end,
                     bf16* memory, float* sums);

}  // namespace linnet::kernels
