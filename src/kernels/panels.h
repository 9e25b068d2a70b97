#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/dense.h"
#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// How a matrix B [inputs, outputs] is packed: in panels of 64 columns, each a dense [inputs, 64] whose rows
/// are padded with zeros to a multiple of 16 and whose columns to 64.
struct PanelLayout {
  static constexpr std::int64_t columns = 64;

  std::int64_t inputs = 0;
  std::int64_t outputs = 0;

  std::int64_t panels() const { return (outputs + columns - 1) / columns; }
  std::int64_t padded_inputs() const { return (inputs + 15) / 16 * 16; }
  /// Floats from one panel to the next.
  std::int64_t panel_floats() const { return padded_inputs() * columns; }
  std::int64_t floats() const { return panels() * panel_floats(); }
  /// Terms that are summed in a register before the sum is added to the ones before it.
  std::int64_t slice() const { return inputs <= 1024 ? 512 : 1024; }
};

/// Writes B, of which element (k, n) lies at b[k · k_stride + n · n_stride]; one of the strides is 1.
void pack_panels(Context& context, float* packed, const PanelLayout& layout, const float* b,
                 std::int64_t k_stride, std::int64_t n_stride);

/// Whether W is so large that its panels do not stay in the caches, and consists of whole blocks of 64 × 64.
bool packs_both(View<const float> w);

/// Writes Wᵀ and W in panels past the caches, for W [outputs, inputs] of which `packs_both` holds. It is read
/// once.
void pack_both_panels(Context& context, float* transposed, float* straight, View<const float> w);

/// Writes element (k, n) of the matrix to b[k · k_stride + n · n_stride].
void unpack_panels(float* b, std::int64_t k_stride, std::int64_t n_stride, const float* packed,
                   const PanelLayout& layout);

/// Columns of panels [first, last) of c = epilogue(a · B), on the calling thread. c, bias and residual are
/// whole. Of bf16 in the panels of NarrowLayout the sums are those of the same numbers in f32, bit for bit.
void multiply_panels(View<float> c, View<const float> a, const float* packed, const PanelLayout& layout,
                     std::int64_t first, std::int64_t last, const Epilogue& epilogue);
void multiply_panels(View<float> c, View<const float> a, const bf16* packed, const PanelLayout& layout,
                     std::int64_t first, std::int64_t last, const Epilogue& epilogue);

}  // namespace linnet::kernels
