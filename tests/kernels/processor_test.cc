#include "kernels/processor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace linnet::kernels {
namespace {

// CTest repeats it with LINNET_ISA for each of these names.
TEST(NarrowInstructions, AreThoseOfTheSetThatTheEnvironmentNames) {
  const char* wanted = std::getenv("LINNET_ISA");
  const std::map<std::string, NarrowInstructions> most = {{"AVX3", NarrowInstructions::none},
                                                          {"AVX3_DL", NarrowInstructions::vnni},
                                                          {"AVX3_ZEN4", NarrowInstructions::bf16},
                                                          {"AVX3_SPR", NarrowInstructions::units}};
  const auto named = wanted == nullptr ? most.end() : most.find(wanted);
  if (named == most.end()) GTEST_SKIP() << "no such set is named";
  if (narrow_instructions_here() < named->second) GTEST_SKIP() << "this processor lacks them";
  EXPECT_EQ(has_matrix_units(), named->second == NarrowInstructions::units);
  EXPECT_EQ(has_fast_instructions_for(WeightType::int8), named->second >= NarrowInstructions::vnni);
  if (named->second < NarrowInstructions::bf16 || has_matrix_units()) {
    EXPECT_EQ(has_fast_instructions_for(WeightType::bf16), has_matrix_units());
  }
}

}  // namespace
}  // namespace linnet::kernels
