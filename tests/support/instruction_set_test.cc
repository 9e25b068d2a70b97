#include "linnet/instruction_set.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "linnet/error.h"

namespace linnet {
namespace {

/// The set that every machine has; Highway chooses it by the compiler.
#ifdef __clang__
constexpr const char* plain = "EMU128";
#else
constexpr const char* plain = "SCALAR";
#endif

// Tests that are repeated with LINNET_ISA (linnet_isa_tests in cmake/module.cmake) are skipped where this one
// is.
TEST(InstructionSet, IsTheOneThatTheEnvironmentNames) {
  const char* wanted = std::getenv("LINNET_ISA");
  try {
    const std::string used = instruction_set();
    EXPECT_FALSE(used.empty());
    // AVX3_DL, AVX3_ZEN4 and AVX3_SPR are AVX3 where they are no targets of their own.
    if (wanted != nullptr) {
      EXPECT_TRUE(std::string(wanted).starts_with(used)) << used << " instead of " << wanted;
    }
  } catch (const UsageError& error) {
    ASSERT_STRNE(wanted, plain) << error.what();
    GTEST_SKIP() << error.what();
  }
}

}  // namespace
}  // namespace linnet
