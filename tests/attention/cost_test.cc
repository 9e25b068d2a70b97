#include "attention/cost.h"

#include <gtest/gtest.h>

#include <tuple>

#include "linnet/feature_map.h"

namespace linnet {
namespace {

/// Pairs (i, j) of `length` tokens that `met` says yes to.
template <class Met>
double count_pairs(std::int64_t length, const Met& met) {
  double pairs = 0;
  for (std::int64_t i = 0; i < length; ++i)
    for (std::int64_t j = 0; j < length; ++j) pairs += met(i, j);
  return pairs;
}

const std::int64_t lengths[] = {0, 1, 31, 32, 33, 64, 65, 200};

TEST(Cost, PairsOfLocalLieInMaskAndWindow) {
  AttentionOptions options;
  options.family = Family::local;
  options.local.left = 9;
  options.local.right = 3;
  for (const std::int64_t n : lengths) {
    const auto near = [](std::int64_t i, std::int64_t j) { return i - j <= 9 && j - i <= 3; };
    EXPECT_EQ(multiplied_pairs(options, Mask::full(), n), count_pairs(n, near));
    EXPECT_EQ(multiplied_pairs(options, Mask::causal(), n),
              count_pairs(n, [&](auto i, auto j) { return j <= i && near(i, j); }));
    EXPECT_EQ(multiplied_pairs(options, Mask::window(4, 7), n),
              count_pairs(n, [](auto i, auto j) { return i - j <= 4 && j - i <= 3; }));
  }
}

TEST(Cost, PairsOfStridedLieInThePattern) {
  AttentionOptions options;
  options.family = Family::strided;
  options.strided.summary = 3;
  for (const std::int64_t n : lengths) {
    options.strided.stride = 8;
    options.strided.pattern = SparsePattern::strided;
    EXPECT_EQ(multiplied_pairs(options, Mask::causal(), n),
              count_pairs(n, [](auto i, auto j) { return j <= i && (i - j < 8 || (i - j) % 8 == 0); }));
    options.strided.pattern = SparsePattern::fixed;
    EXPECT_EQ(multiplied_pairs(options, Mask::causal(), n),
              count_pairs(n, [](auto i, auto j) { return j <= i && (i / 8 == j / 8 || j % 8 >= 5); }));
  }
  options.strided.stride = 0;  // 32 for up to 1,024 tokens
  options.strided.pattern = SparsePattern::strided;
  EXPECT_EQ(multiplied_pairs(options, Mask::causal(), 200),
            count_pairs(200, [](auto i, auto j) { return j <= i && (i - j < 32 || (i - j) % 32 == 0); }));
}

TEST(Cost, PairsOfLshMeetInTheirBucketAndChunks) {
  AttentionOptions options;
  options.family = Family::lsh;
  for (const std::int64_t n : lengths) {
    for (const auto& [buckets, chunk] :
         {std::pair<std::int64_t, std::int64_t>{1, 8}, {4, 16}, {6, 5}, {2, 500}}) {
      SCOPED_TRACE(testing::Message() << n << " tokens, " << buckets << " buckets, chunk " << chunk);
      options.lsh = {.buckets = buckets, .chunk = chunk, .rounds = 3};
      const auto meet = [&, buckets = buckets, chunk = chunk](std::int64_t i, std::int64_t j) {
        const std::int64_t apart = i / chunk - j / chunk;
        return i != j && i * buckets / n == j * buckets / n && (apart == 1 || (apart == 0));
      };
      EXPECT_EQ(multiplied_pairs(options, Mask::full(), n), 3 * count_pairs(n, meet));
      EXPECT_EQ(multiplied_pairs(options, Mask::causal(), n),
                3 * count_pairs(n, [&](auto i, auto j) { return j < i && meet(i, j); }));
    }
  }
}

TEST(Cost, FollowsTheFormulasOfTheTable) {
  const CostSizes sizes = {.length = 100, .head_dim = 16, .value_dim = 8, .rank = 12};
  AttentionOptions options;
  const auto expect_cost = [&](double pairs, double forward, double training) {
    const AttentionCost cost = least_cost(options, sizes, pairs);
    EXPECT_EQ(cost.forward, forward) << name_of(options.family);
    EXPECT_EQ(cost.training, training) << name_of(options.family);
  };
  expect_cost(0, 100.0 * 4 * 16 * 8, 100.0 * 14 * 16 * 8);
  // Products with the directions of queries and keys, and in training of their gradients.
  for (const auto& [map, directions, each] : {std::tuple("favor", Directions::orthogonal, 48 * 2.0 * 16),
                                              {"favor", Directions::hadamard, 3 * 3 * 16.0 * 4},
                                              {"favor-sincos", Directions::independent, 24 * 2.0 * 16},
                                              {"random-relu", Directions::orthogonal, 48 * 2.0 * 16}}) {
    options.linear.feature_map =
        random_feature_map(map, sizes.head_dim, {.features = 48, .directions = directions});
    expect_cost(0, 100.0 * (4 * 48 * 8 + 2 * each), 100.0 * (14 * 48 * 8 + 4 * each));
  }
  for (const Family family : {Family::softmax, Family::kernel, Family::local, Family::strided}) {
    options.family = family;
    expect_cost(7, 7.0 * 2 * (16 + 8), 7.0 * (8 * 16 + 6 * 8));
  }
  options.family = Family::linformer;
  expect_cost(0, 100.0 * 4 * 12 * (16 + 8), 100.0 * 12 * (14 * 16 + 12 * 8));
  options.family = Family::lsh;
  options.lsh = {.buckets = 64, .chunk = 8, .rounds = 2};  // hashes of 32 and of 2 buckets
  const double hashes = 100.0 * 2 * 16 * (32 + 2);
  expect_cost(7, 7.0 * 2 * (16 + 8) + hashes, 7.0 * (8 * 16 + 6 * 8) + hashes);
}

}  // namespace
}  // namespace linnet
