#pragma once

#include <cstdlib>

#include "kernels/targets.h"

namespace linnet {

/// Calls body with each instruction set of Highway where oneDNN is kept from AVX-512 (CTest's
/// *_without_avx512), and otherwise with the best one: a machine on which oneDNN multiplies with AVX-512 and
/// Highway with less is none.
template <class Body>
void for_every_instruction_set(Body body) {
  if (std::getenv("DNNL_MAX_CPU_ISA") != nullptr)
    kernels::for_every_target(body);
  else
    body();
}

}  // namespace linnet
