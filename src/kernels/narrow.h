#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dense.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// How a matrix B [inputs, outputs] of bf16 or int8 is packed: in panels of 64 columns, each in blocks of 16
/// groups of 2 (bf16) or 4 (int8) rows, a group's numbers of a column side by side; padded with zeros.
struct NarrowLayout {
  static constexpr std::int64_t columns = 64;

  WeightType type;
  std::int64_t inputs = 0, outputs = 0;

  std::int64_t group() const { return type == WeightType::bf16 ? 2 : 4; }
  std::int64_t element() const { return type == WeightType::bf16 ? 2 : 1; }
  std::int64_t panels() const { return (outputs + columns - 1) / columns; }
  std::int64_t padded_inputs() const {
    const std::int64_t block = 16 * group();
    return (inputs + block - 1) / block * block;
  }
  std::int64_t panel_bytes() const { return padded_inputs() * columns * element(); }
  std::int64_t bytes() const { return panels() * panel_bytes(); }

  /// Of element (k, n), in elements.
  std::int64_t offset(std::int64_t k, std::int64_t n) const {
    const std::int64_t block = 16 * group();
    return n / columns * padded_inputs() * columns + k / block * block * columns +
           k % block / group() * columns * group() + n % columns * group() + k % group();
  }
};

/// What int8 weights come with: the scale of every output's codes, and 128 times the sum of its codes, which
/// the products with unsigned rows have too much.
struct CodeScales {
  std::vector<float> scale;
  std::vector<std::int32_t> excess;
};

/// Sums of codes wrap around; what is left after `excess` has been subtracted fits.
inline std::int32_t wrapping_sum(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
inline float wrapping_sum(float a, float b) { return a + b; }

/// Rows as the products with narrow weights take them, dense: bf16, or codes 1 … 255 of int8 that stand for
/// scales[i] · (code − 128).
struct NarrowRows {
  WeightType type;
  void* rows;
  float* scales;  ///< a row's, NaN where it holds numbers that are not finite; int8 alone
};

/// `to` = rows, rounded.
void narrow_rows(const NarrowRows& to, View<const float> rows);

/// A product of narrow rows and of panels of `layout`, of which `panels` is the first: `outputs` columns.
struct NarrowProduct {
  NarrowLayout layout;
  NarrowRows rows;
  std::int64_t count = 0;  ///< rows
  const std::byte* panels = nullptr;
  std::int64_t outputs = 0;
  bool columns = false;  ///< whether the rows are columns of such a panel: sums of bf16 alone
  bool units = false;    ///< whether matrix units multiply, which take at most 64 rows and no columns

  const std::byte* first_row() const { return static_cast<const std::byte*>(rows.rows); }
  std::int64_t row_bytes() const { return layout.inputs * layout.element(); }
};

/// What the products of some rows left for some outputs, rows `stride` apart: sums of f32 (bf16), or of s32
/// with the scales of the rows and of the weights. Output 0 is output `first` of `weights`.
struct NarrowSums {
  WeightType type;
  const void* sums;
  std::int64_t stride;
  const float* row_scales;
  const CodeScales* weights;
  std::int64_t first;
};

/// to [rows, outputs], rounded where it is bf16, = epilogue(sums). `to` may be the memory of the sums. GELU
/// with an absolute error below 1e-6, and its slope with one below 2e-5.
void finish_narrow(FloatView to, const NarrowSums& sums, const Epilogue& epilogue);

/// The same as the rows [rows, outputs] of a next product; `row` has room for one of them.
void finish_narrow(const NarrowRows& to, std::int64_t rows, std::span<float> row, const NarrowSums& sums,
                   const Epilogue& epilogue);

/// Whether this machine multiplies a group of rows by that of a column in one instruction (AVX-512 with VNNI
/// for int8, with bf16), faster than in f32. The following products need it. Each of them takes 2 · rows ·
/// inputs · outputs operations, 128 or 64 of them in an instruction. Row i of a result depends on row i
/// alone, bit for bit.
bool multiplies_groups(WeightType type);

/// sums [count, outputs] = rows · panels, or += where `add`: f32 for bf16, s32 for int8.
void multiply_groups(View<float> sums, bool add, const NarrowProduct& product);
void multiply_groups(View<std::int32_t> sums, bool add, const NarrowProduct& product);

/// to [count, outputs] = epilogue(rows · panels), tile by tile while the sums are in the first cache; bf16
/// from bf16 alone. `weights` and `first` are those of NarrowSums.
void multiply_groups(FloatView to, const NarrowProduct& product, const CodeScales* weights,
                     std::int64_t first, const Epilogue& epilogue);

}  // namespace linnet::kernels
