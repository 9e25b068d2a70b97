#pragma once

#include <cstdint>

#include "kernels/dense.h"
#include "linnet/context.h"

namespace linnet::kernels {

/// A product in f32 by one of oneDNN's primitives for one thread: c [rows, outputs] = a [rows, inputs] · B
/// (+ bias), or += where `add`; c and a dense, since with strides oneDNN 2.6 falls back to a plain loop.
struct LibraryProduct {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  bool bias = false, add = false;

  auto operator<=>(const LibraryProduct&) const = default;
};

/// Runs it on the calling thread; B lies in panels of 64 columns (`PanelLayout`). What it needs is made at
/// the first call and kept in the context.
void run_library(Context& context, const LibraryProduct& product, float* c, const float* a,
                 const float* panels, const float* bias = nullptr);

/// Whether oneDNN has one of its fast kernels for the product on this machine. Others are plain loops.
bool library_is_fast(const LibraryProduct& product);

/// Whether the processor has matrix units (AMX) for bf16 and int8, and the same allow them.
bool has_matrix_units();

/// Whether the processor has AVX-512's instructions for products of a narrow type (VNNI or bf16), faster than
/// those of f32, and neither LINNET_ISA nor oneDNN's own variables forbid them.
bool has_fast_instructions_for(WeightType type);

}  // namespace linnet::kernels
