#pragma once

#include "kernels/dense.h"

namespace linnet::kernels {

/// What products of narrow types use beside AVX-512: dot products of int8 (VNNI), then of bf16, then matrix
/// units (AMX) for both. Each comes with those before it.
enum class NarrowInstructions { none, vnni, bf16, units };

/// What this processor has and the system lets the process use.
NarrowInstructions narrow_instructions_here();

/// Holds the products to instructions up to `most`. Before the first product.
void limit_narrow_instructions(NarrowInstructions most);

/// Whether there are matrix units that nothing forbids.
bool has_matrix_units();

/// Whether there are instructions for products of a narrow type, faster than those of f32, that nothing
/// forbids.
bool has_fast_instructions_for(WeightType type);

}  // namespace linnet::kernels
