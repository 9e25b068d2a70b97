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

// Targets that were compiled and that this machine has, the best first; the plain one always is where Highway
// has no target that all processors have, as SSE2.
std::vector<std::int64_t> usable_targets() {
  std::vector<std::int64_t> targets;
  // The best target has the lowest bit.
  for (std::int64_t rest = hwy::SupportedTargets() & HWY_TARGETS & ~plain_targets; rest != 0;
       rest &= rest - 1)
    targets.push_back(rest & -rest);
  if ((HWY_TARGETS & plain_targets) != 0) targets.push_back(HWY_TARGETS & plain_targets);
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

std::string in_capitals(std::string name) {
  for (char& letter : name)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return name;
}

/// What the process uses.
struct Choice {
  std::string name;
  std::string complaint;  ///< what is wrong with LINNET_ISA; empty where it is obeyed or not set
};

Choice choose() {
  const std::vector<std::int64_t> targets = usable_targets();
  const char* wanted = std::getenv("LINNET_ISA");
  if (wanted == nullptr || *wanted == '\0') return {hwy::TargetName(targets.front()), {}};
  for (const std::int64_t target : targets) {
    const std::string name = hwy::TargetName(target);
    if (in_capitals(wanted) != in_capitals(name)) continue;
    hwy::DisableTargets(target - 1);
    // Every call of Highway 1.0.3's SupportedTargets makes the dispatch choose among all targets of the
    // machine again, the disabled ones too, so the choice is made here and nothing but tests asks for the
    // targets later.
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    kernels::limit_library(library_limit(target));
    return {name, {}};
  }
  return {{}, fmt::format("expected one of {}, which this machine has, got {}", names_of(targets), wanted)};
}

// Made before main, while there is one thread, and never again.
const Choice& choice() {
  static const Choice made = choose();
  return made;
}

}  // namespace

const char* instruction_set() {
  if (!choice().complaint.empty()) fail<UsageError>("LINNET_ISA", "{}", choice().complaint);
  return choice().name.c_str();
}

}  // namespace linnet

/// What the link option of CMakeLists.txt asks for; its initialiser is what counts.
extern "C" const bool linnet_instruction_set_is_limited;
extern "C" const bool linnet_instruction_set_is_limited = (linnet::choice(), true);
