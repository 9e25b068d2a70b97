#pragma once

#include <cstdint>

namespace linnet::kernel {

// Products of tiles in padded memory, compiled for every instruction set: what attention/tiles/gemm-inl.h
// has, called once a tile. Buffers begin at 64-byte boundaries, their rows are `padded` floats long and as
// many as `padded` of their count; what lies behind the rows and columns that are named is read and written,
// and means nothing.

constexpr std::int64_t padded(std::int64_t count) { return (count + 15) / 16 * 16; }

/// c [rows, columns] = a [rows, depth] b [depth, columns].
void multiply(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
              std::int64_t rows, std::int64_t columns, std::int64_t depth);

/// The same, added to c.
void multiply_add(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b,
                  std::int64_t ldb, std::int64_t rows, std::int64_t columns, std::int64_t depth);

/// c [rows, columns] = aᵀ b with a [depth, rows] and b [depth, columns].
void multiply_transposed(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b,
                         std::int64_t ldb, std::int64_t rows, std::int64_t columns, std::int64_t depth);

/// to [columns, rows] = from [rows, columns] transposed.
void transpose(float* to, std::int64_t ldt, const float* from, std::int64_t ldf, std::int64_t rows,
               std::int64_t columns);

/// sums[i] += Σ_j s[i][j] over `columns` columns, padded with zeros. False where some s is
/// below 0 or not finite.
bool add_row_sums(double* sums, const float* s, std::int64_t lds, std::int64_t rows, std::int64_t columns);

// Rows of the built-in similarities: `count` numbers, anywhere in memory.

/// s = (scale · x + offset)^power, power even.
void polynomial_row(float* s, const float* x, std::int64_t count, float scale, float offset, int power);

/// w = ds · d/dx of the same, 0 where ds is 0.
void polynomial_slope_row(float* w, const float* x, const float* ds, std::int64_t count, float scale,
                          float offset, int power);

/// s = exp(min(scale · x, 80)).
void limited_exp_row(float* s, const float* x, std::int64_t count, float scale);

/// w = ds · d/dx of the same, from s.
void limited_exp_slope_row(float* w, const float* s, const float* ds, std::int64_t count, float scale);

/// s = exp(−factor · max(0, own + others − 2 x)), `others` a number for each column.
void gaussian_row(float* s, const float* x, const float* others, std::int64_t count, float own, float factor);

/// w = factor · ds · s.
void product_row(float* w, const float* s, const float* ds, std::int64_t count, float factor);

}  // namespace linnet::kernel
