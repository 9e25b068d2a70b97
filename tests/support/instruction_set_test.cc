#include "linnet/instruction_set.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "linnet/error.h"

namespace linnet {
namespace {

// Tests that are repeated with LINNET_ISA (linnet_isa_tests in cmake/module.cmake) are skipped where this one
// is.
TEST(InstructionSet, IsTheOneThatTheEnvironmentNames) {
  const char* wanted = std::getenv("LINNET_ISA");
  try {
    const std::string used = instruction_set();
    EXPECT_FALSE(used.empty());
    if (wanted != nullptr) {
      EXPECT_EQ(used, wanted);
    }
  } catch (const UsageError& error) {
    GTEST_SKIP() << error.what();
  }
}

}  // namespace
}  // namespace linnet
