#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace linnet {
namespace {

TEST(Random, IsPhilox4x32With10Rounds) {
  // Known answer of the authors' test vectors: counter and key all zero. Purpose 0 is initial_weights.
  const auto words = Random(0, Draw::initial_weights, 0).block(0);
  EXPECT_EQ(words[0], 0x6627e8d5u);
  EXPECT_EQ(words[1], 0xe169c58du);
  EXPECT_EQ(words[2], 0xbc57ac4cu);
  EXPECT_EQ(words[3], 0x9b00dbd8u);
}

TEST(Random, DependsOnSeedPurposeStreamAndIndex) {
  const Random random(7, Draw::test, 3);
  EXPECT_EQ(random.bits(5), Random(7, Draw::test, 3).bits(5));
  EXPECT_NE(random.bits(5), random.bits(6));
  EXPECT_NE(random.bits(5), Random(8, Draw::test, 3).bits(5));
  EXPECT_NE(random.bits(5), Random(7, Draw::dropout, 3).bits(5));
  EXPECT_NE(random.bits(5), Random(7, Draw::test, 4).bits(5));
}

TEST(Random, UniformHasItsMomentsAndStaysInside) {
  const Random random(1, Draw::test);
  double sum = 0, squares = 0;
  constexpr int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = random.uniform(i);
    ASSERT_GT(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.003);
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.003);
}

TEST(Random, NormalHasItsMoments) {
  const Random random(2, Draw::test);
  double moments[5] = {};
  constexpr int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal(i);
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / n;
  }
  EXPECT_NEAR(moments[1], 0, 0.01);
  EXPECT_NEAR(moments[2], 1, 0.02);
  EXPECT_NEAR(moments[3], 0, 0.04);
  EXPECT_NEAR(moments[4], 3, 0.1);
}

TEST(Random, BelowReachesEveryValueEvenly) {
  const Random random(3, Draw::test);
  int counts[7] = {};
  for (int i = 0; i < 70000; ++i) ++counts[random.below(7, i)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.below(1, 0), 0u);
}

TEST(PortableMathematics, AgreesWithTheLibrary) {
  for (double x = 1e-12; x < 1e12; x *= 1.37)
    EXPECT_NEAR(portable_log(x), std::log(x), 4e-16 * std::max(1.0, std::abs(std::log(x)))) << x;
  for (int i = 0; i < 10000; ++i) {
    const double turn = i / 10000.0;
    EXPECT_NEAR(portable_cos_turns(turn), std::cos(2 * std::numbers::pi * turn), 1e-15) << turn;
  }
}

}  // namespace
}  // namespace linnet
