#pragma once

#include "linnet/instruction_set.h"

namespace linnet::kernels {

/// What oneDNN may be held to: its names for the instruction sets of Highway's targets.
enum class LibraryLimit { avx512_core, avx2, sse41 };

/// Holds oneDNN to instructions up to `limit`, if no product was made yet; in library.cc, which alone knows
/// it.
void limit_library(LibraryLimit limit);

}  // namespace linnet::kernels
