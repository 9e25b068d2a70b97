// LINNET_ISA: limits the kernels of the whole process, before main. Programs that link the kernels at all
// link this file too, used or not (CMakeLists.txt beside it).
#include "linnet/instruction_set.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "base/fail.h"
#include "kernels/processor.h"

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

/// What LINNET_ISA may name.
struct Set {
  std::string name;
  std::int64_t target;
  kernels::NarrowInstructions narrow;  ///< that products may use beside the target's
};

/// What this machine has, the best first: the targets, and beside AVX3 what products use of Highway's later
/// ones, whether these were compiled or not.
std::vector<Set> usable_sets() {
  using kernels::NarrowInstructions;
  const Set later[] = {{"AVX3_SPR", HWY_AVX3, NarrowInstructions::units},
                       {"AVX3_ZEN4", HWY_AVX3, NarrowInstructions::bf16},
                       {"AVX3_DL", HWY_AVX3, NarrowInstructions::vnni}};
  std::vector<Set> sets;
  for (const std::int64_t target : usable_targets()) {
    if (target == HWY_AVX3) {
      for (const Set& set : later) {
        const bool compiled = std::ranges::find(sets, set.name, &Set::name) != sets.end();
        if (!compiled && kernels::narrow_instructions_here() >= set.narrow) sets.push_back(set);
      }
    }
    const std::string name = hwy::TargetName(target);
    const auto* const found = std::ranges::find(later, name, &Set::name);
    sets.push_back({name, target, found != std::end(later) ? found->narrow : NarrowInstructions::none});
  }
  return sets;
}

std::string names_of(const std::vector<Set>& sets) {
  std::string names;
  for (const Set& set : sets) names += (names.empty() ? "" : ", ") + set.name;
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
  const char* wanted = std::getenv("LINNET_ISA");
  if (wanted == nullptr || *wanted == '\0') return {hwy::TargetName(usable_targets().front()), {}};
  const std::vector<Set> sets = usable_sets();
  for (const Set& set : sets) {
    if (in_capitals(wanted) != in_capitals(set.name)) continue;
    hwy::DisableTargets(set.target - 1);
    // Every call of Highway 1.0.3's SupportedTargets makes the dispatch choose among all targets of the
    // machine again, the disabled ones too, so the choice is made here and nothing but tests asks for the
    // targets later.
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    kernels::limit_narrow_instructions(set.narrow);
    return {hwy::TargetName(set.target), {}};
  }
  return {{}, fmt::format("expected one of {}, which this machine has, got {}", names_of(sets), wanted)};
}

// Made before main, while there is one thread, and never again. Never destroyed: models may be loaded while
// the program ends.
const Choice& choice() {
  static const Choice& made = *new Choice(choose());
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
