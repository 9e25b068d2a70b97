#pragma once

#include <cstdint>
#include <vector>

#include "kernels/dense.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// How a matrix B [inputs, outputs] of bf16 or int8 is packed: in panels of 64 columns, each in blocks of 16
/// groups of 2 (bf16) or 4 (int8) rows, a group's numbers of a column side by side; padded with zeros. oneDNN
/// calls it BA16a64b2a and BA16a64b4a.
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

/// What int8 weights come with: the scale of every output's codes, and the sum of its codes, 128 of which the
/// products with unsigned rows have too much.
struct CodeScales {
  std::vector<float> scale;
  std::vector<std::int32_t> sum;
};

/// Rows of f32 as the products with narrow weights take them, dense: bf16, or codes 1 … 255 that stand for
/// scale · (code − 128).
void narrow_rows(bf16* to, View<const float> rows);
void quantise_rows(std::uint8_t* to, float* scales, View<const float> rows);

/// A row of int8 products as f32: to[n] = row_scale · scale[n] · (sums[n] − 128 · sum[n]), for the outputs
/// from `first` on. `to` may be the memory of `sums`.
void scale_codes(float* to, const std::int32_t* sums, float row_scale, const CodeScales& scales,
                 std::int64_t first, std::int64_t count);

}  // namespace linnet::kernels
