#include "kernels/processor.h"

#include <algorithm>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define LINNET_ASKS_PROCESSOR 1
#else
#define LINNET_ASKS_PROCESSOR 0
#endif

namespace linnet::kernels {
namespace {

NarrowInstructions most_allowed = NarrowInstructions::units;

#if LINNET_ASKS_PROCESSOR

// AMX-BF16, AMX-TILE and AMX-INT8 (Intel's manual of CPUID, leaf 7). A process has the tile registers, 8 KB
// for every thread that uses them, from Linux only after it has asked for them.
bool takes_matrix_units() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned units = 1u << 22 | 1u << 24 | 1u << 25;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & units) != units) return false;
  constexpr int ask = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, ask, tile_data) == 0;
}

NarrowInstructions ask_processor() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni"))
    return NarrowInstructions::none;
  if (!__builtin_cpu_supports("avx512bf16")) return NarrowInstructions::vnni;
  return takes_matrix_units() ? NarrowInstructions::units : NarrowInstructions::bf16;
}

// Whether vdpbf16ps is faster than two multiply-adds of f32. Intel's cores begin one in two cycles and four
// such multiply-adds meanwhile (measured on Emerald Rapids), AMD's as many of either.
bool multiplies_pairs_fast() {
  __builtin_cpu_init();
  return !__builtin_cpu_is("intel");
}

#else

NarrowInstructions ask_processor() { return NarrowInstructions::none; }
bool multiplies_pairs_fast() { return true; }

#endif

NarrowInstructions instructions() { return std::min(narrow_instructions_here(), most_allowed); }

}  // namespace

NarrowInstructions narrow_instructions_here() {
  static const NarrowInstructions here = ask_processor();
  return here;
}

void limit_narrow_instructions(NarrowInstructions most) { most_allowed = most; }

bool has_matrix_units() { return instructions() == NarrowInstructions::units; }

bool has_fast_instructions_for(WeightType type) {
  if (type == WeightType::int8) return instructions() >= NarrowInstructions::vnni;
  // Beside matrix units products hardly use the others.
  return type == WeightType::bf16 &&
         (has_matrix_units() || (instructions() >= NarrowInstructions::bf16 && multiplies_pairs_fast()));
}

}  // namespace linnet::kernels
