#include "linnet/mask.h"

#include <gtest/gtest.h>

#include "linnet/error.h"

namespace linnet {
namespace {

TEST(Mask, FullSeesEveryKey) {
  for (const std::int64_t i : {0, 3, 99}) {
    const auto [begin, end] = Mask::full().interval(0, i, 7);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 7);
  }
}

TEST(Mask, CausalSeesItselfAndThePast) {
  for (std::int64_t i = 0; i < 7; ++i) EXPECT_EQ(Mask::causal().interval(0, i, 7).end, i + 1);
}

TEST(Mask, KeyLengthsLimitEachEntry) {
  const Mask full = Mask::full().with_key_lengths({0, 3, 7});
  const Mask causal = Mask::causal().with_key_lengths({0, 3, 7});
  for (std::int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(full.interval(0, i, 7).end, 0);
    EXPECT_EQ(full.interval(1, i, 7).end, 3);
    EXPECT_EQ(full.interval(2, i, 7).end, 7);
    EXPECT_EQ(causal.interval(0, i, 7).end, 0);
    EXPECT_EQ(causal.interval(1, i, 7).end, std::min<std::int64_t>(i + 1, 3));
    EXPECT_EQ(causal.interval(2, i, 7).end, i + 1);
  }
}

TEST(Mask, RefusesWhatDoesNotFit) {
  EXPECT_NO_THROW(Mask::full().check("test", 2, 5, 7));
  EXPECT_NO_THROW(Mask::causal().check("test", 2, 7, 7));
  EXPECT_THROW(Mask::causal().check("test", 2, 5, 7), Error);
  EXPECT_THROW(Mask::full().with_key_lengths({1}).check("test", 2, 5, 7), Error);
  EXPECT_THROW(Mask::full().with_key_lengths({1, 8}).check("test", 2, 5, 7), Error);
  EXPECT_THROW(Mask::full().with_key_lengths({-1, 7}).check("test", 2, 5, 7), Error);
  try {
    Mask::causal().check("test", 1, 5, 7);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[test] expected as many queries as keys under a causal mask, got 5 and 7");
  }
}

TEST(Mask, SaysItsName) {
  EXPECT_EQ(Mask::full().name(), "full");
  EXPECT_EQ(Mask::causal().with_key_lengths({3}).name(), "causal, key lengths");
}

}  // namespace
}  // namespace linnet
