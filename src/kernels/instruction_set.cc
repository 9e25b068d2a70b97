// LINNET_ISA: limits Highway's dispatch and oneDNN for the whole process, before main. Programs that link the
// kernels at all link this file too, used or not (CMakeLists.txt beside it).
#include "kernels/instruction_set.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/fail.h"

namespace linnet {
namespace {

constexpr std::int64_t plain_targets = HWY_SCALAR | HWY_EMU128;

// Targets that were compiled and that this machine has, the best first; the plain one always is.
std::vector<std::int64_t> usable_targets() {
  std::vector<std::int64_t> targets;
  // The best target has the lowest bit.
  for (std::int64_t rest = hwy::SupportedTargets() & HWY_TARGETS & ~plain_targets; rest != 0;
       rest &= rest - 1)
    targets.push_back(rest & -rest);
  targets.push_back(HWY_TARGETS & plain_targets);
  return targets;
}

kernels::LibraryLimit library_limit(std::int64_t target) {
  if (target < HWY_AVX2) return kernels::LibraryLimit::avx512_core;
  return target == HWY_AVX2 ? kernels::LibraryLimit::avx2 : kernels::LibraryLimit::sse41;
}

std::string names_of(const std::vector<std::int64_t>& targets) {
  std::string names;
  for (const std::int64_t target : targets)
    names += (names.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  return names;
}

// What is wrong with LINNET_ISA; empty where it is obeyed or not set.
std::string limit_process() {
  const char* wanted = std::getenv("LINNET_ISA");
  if (wanted == nullptr || *wanted == '\0') return {};
  const std::vector<std::int64_t> targets = usable_targets();
  for (const std::int64_t target : targets) {
    if (std::string(wanted) != hwy::TargetName(target)) continue;
    hwy::DisableTargets(target - 1);
    kernels::limit_library(library_limit(target));
    return {};
  }
  return fmt::format("expected one of {}, which this machine has, got {}", names_of(targets), wanted);
}

// Set before main, while there is one thread, and never again.
const std::string& complaint() {
  static const std::string text = limit_process();
  return text;
}

}  // namespace

const char* instruction_set() {
  if (!complaint().empty()) fail<UsageError>("LINNET_ISA", "{}", complaint());
  return hwy::TargetName(usable_targets().front());
}

}  // namespace linnet

/// What the link option of CMakeLists.txt asks for; its initialiser is what counts.
extern "C" const bool linnet_instruction_set_is_limited;
extern "C" const bool linnet_instruction_set_is_limited = (linnet::complaint(), true);
