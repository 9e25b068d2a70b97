#include "c_api/c_boundary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/memory.h"
#include "linnet/generation.h"

namespace linnet {
namespace {

TEST(CBoundary, CatchesEverything) {
  EXPECT_EQ(guarded([] {}), LINNET_OK);
  EXPECT_EQ(guarded([] { fail<UsageError>("operation", "expected {}, got {}", 1, 2); }), LINNET_USAGE);
  EXPECT_STREQ(linnet_error(), "[operation] expected 1, got 2");
  EXPECT_EQ(guarded([] { throw std::bad_alloc(); }), LINNET_OUT_OF_MEMORY);
  EXPECT_EQ(guarded([] { throw std::length_error("too long"); }), LINNET_OUT_OF_MEMORY);
  EXPECT_EQ(guarded([] { require_memory("all", 1e30); }), LINNET_OUT_OF_MEMORY);
  EXPECT_THAT(linnet_error(), testing::HasSubstr("[memory] expected all to fit"));
  EXPECT_EQ(guarded([] { throw std::runtime_error("too long"); }), LINNET_FAILED);
  EXPECT_STREQ(linnet_error(), "too long");
  EXPECT_EQ(guarded([] { throw 7; }), LINNET_FAILED);
  EXPECT_STREQ(linnet_error(), "[internal] expected an exception with a message, got one without");
}

TEST(CBoundary, AnswersWithANumberOtherwise) {
  EXPECT_EQ(guarded_value(-1, [] { return 5; }), 5);
  EXPECT_EQ(guarded_value(-1, []() -> int { throw "text"; }), -1);
}

TEST(CBoundary, RefusesCountsBeyondMemory) {
  int one = 0;
  EXPECT_EQ(elements("operation", "numbers", &one, 1).size(), 1u);
  EXPECT_EQ(elements<int>("operation", "numbers", nullptr, 0).size(), 0u);
  EXPECT_THROW(elements<int>("operation", "numbers", nullptr, 1), UsageError);
  EXPECT_THROW(elements("operation", "numbers", &one, static_cast<std::size_t>(-1)), UsageError);
  EXPECT_THROW(elements("operation", "numbers", &one, static_cast<std::size_t>(-1) / 2 / sizeof(int) + 1),
               UsageError);
}

/// The second version of a struct whose first one ended behind `first`.
struct Options {
  std::size_t size;
  std::int64_t first;
  std::int64_t second;
};
constexpr std::size_t first_bytes = 16;
constexpr Options defaults = {sizeof(Options), 1, 2};

TEST(CBoundary, OlderCallersGetTheDefaultsOfNewerMembers) {
  struct {
    std::size_t size = first_bytes;
    std::int64_t first = 10;
    std::int64_t not_an_option = 20;
  } old;
  const Options read = options_of("operation", reinterpret_cast<const Options*>(&old), defaults, first_bytes);
  EXPECT_EQ(read.first, 10);
  EXPECT_EQ(read.second, 2);
  EXPECT_EQ(options_of<Options>("operation", nullptr, defaults, first_bytes).first, 1);

  write_defaults("operation", reinterpret_cast<Options*>(&old), first_bytes, defaults, first_bytes);
  EXPECT_EQ(old.size, first_bytes);
  EXPECT_EQ(old.first, 1);
  EXPECT_EQ(old.not_an_option, 20) << "written behind the struct's size";
}

}  // namespace
}  // namespace linnet
