#pragma once

#include "linnet/export.h"

namespace linnet {

/// The instruction set that the kernels of this process use, by Highway's name: "AVX3" (AVX-512), "AVX2",
/// "SSE4", "SCALAR" or "EMU128". It is the best one that this machine has, or the one that the environment
/// variable LINNET_ISA named when the process began. Products with narrow weights then use the instructions
/// of that set alone; the variable may also name "AVX3_DL", AVX3 with VNNI, "AVX3_ZEN4", with bf16 too, and
/// "AVX3_SPR", with AMX too. Throws UsageError if it names a set that was not compiled or that this machine
/// lacks; then nothing is limited. The program `linnet` checks this first. In a program of your own this call
/// or the first model does.
LINNET_API const char* instruction_set();

}  // namespace linnet
