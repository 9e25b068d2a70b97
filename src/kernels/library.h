#pragma once

#include <cstdint>

#include "kernels/dense.h"
#include "linnet/context.h"

namespace linnet::kernels {

/// A product by one of oneDNN's primitives for one thread: c [rows, outputs] = a [rows, inputs] · B (+ bias),
/// or += where `add`; c and a dense, since with strides oneDNN 2.6 falls back to a plain loop. f32: all f32.
/// bf16: a and B bf16, c f32. int8: a u8, B s8, c s32, without a bias.
struct LibraryProduct {
  WeightType type = WeightType::f32;
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  bool bias = false, add = false;

  auto operator<=>(const LibraryProduct&) const = default;
};

/// Runs it on the calling thread; B lies in panels of 64 columns (`PanelLayout`, or `NarrowLayout` for the
/// narrow types). What it needs is made at the first call and kept in the context.
void run_library(Context& context, const LibraryProduct& product, void* c, const void* a, const void* panels,
                 const float* bias = nullptr);

/// Whether oneDNN has one of its fast kernels for the product on this machine. Others are plain loops.
bool library_is_fast(const LibraryProduct& product);

/// Whether that kernel uses matrix units (AMX), which need many rows.
bool library_has_matrix_units(const LibraryProduct& product);

/// Whether it has any on this machine.
bool library_has_matrix_units();

/// Whether the processor has AVX-512's instructions for products of a narrow type (VNNI or bf16), faster than
/// those of f32, and neither LINNET_ISA nor oneDNN's own variables forbid them.
bool has_fast_instructions_for(WeightType type);

}  // namespace linnet::kernels
