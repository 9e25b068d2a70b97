#pragma once

#include <cstdint>

#include "linnet/tensor.h"

namespace linnet::kernels {

// Rounding f32 matrices to the two layouts in which products of bf16 take them: the right factor in panels of
// 64 columns (NarrowLayout), where the numbers of rows 2k and 2k + 1 stand side by side, the left factor row
// after row.

/// panel [padded rows · 64] = columns [begin, begin + 64) of b [rows, columns], rounded; missing columns and
/// rows are zero. `padded` is a multiple of 32.
void pack_pairs(bf16* panel, View<const float> b, std::int64_t begin, std::int64_t padded);

/// The same of bᵀ: columns are the rows [begin, begin + 64) of w. `memory` is room for 64 · padded bf16.
void pack_pairs_transposed(bf16* panel, View<const float> w, std::int64_t begin, std::int64_t padded,
                           bf16* memory);

/// to [count, stride] = columns [begin, begin + count) of b [rows, columns], rounded, each as a row of `rows`
/// numbers; count ≤ 64, rows even. `memory` is room for 64 · 32 bf16. `sums` [count], if not null, receives
/// the sums of those columns, unrounded: of 32 rows each, one after another.
void transpose_rounded(bf16* to, std::int64_t stride, View<const float> b, std::int64_t begin,
                       std::int64_t count, bf16* memory, float* sums);

}  // namespace linnet::kernels
