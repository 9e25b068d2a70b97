#include "training/cluster_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "linnet/error.h"
#include "support/errors.h"
#include "training/run_config.h"

namespace linnet {
namespace {

using testing::HasSubstr;

constexpr double gigabit = 1e9 / 8;
constexpr double no_limit = std::numeric_limits<double>::infinity();
constexpr PassTimes times = {0.4, 0.8, 0.05};

/// configs/paper-mnist.toml, with what the data decide.
RunConfig paper_mnist() {
  RunConfig config;
  config.read_toml(
      "[model]\nlayers = 8\nheads = 8\nwidth = 256\nfeed_forward = 1024\nnorm = \"post\"\n"
      "positions = \"sinusoidal\"\nhead = \"logistics\"\nmixtures = 10\nlength = 784\nvocabulary = 256\n"
      "[image]\nheight = 28\nwidth = 28\nchannels = 1\n[training]\nbatch = 10\n",
      "a document");
  return config;
}

ClusterCost cost_of(const RunConfig& config, const Cluster& cluster, const PassTimes& pass = times) {
  return cluster_cost(config, exchange_sizes(config, cluster.sequence_ranks), pass, cluster);
}

TEST(ClusterCost, CountsTheGradientOfTheMnistModel) {
  // A block: four square products, two of the feed-forward layer, their biases, two norms. The embedding of
  // 257 tokens, and a head of 30 numbers.
  const double block = 4 * (256 * 256 + 256) + 256 * 1024 + 1024 + 1024 * 256 + 256 + 2 * 2 * 256;
  const double parameters = 8 * block + 257 * 256 + 256 * 30 + 30;
  EXPECT_EQ(exchange_sizes(paper_mnist(), 1).gradient, 4 * parameters);
  const ClusterCost cost = cost_of(paper_mnist(), {.ranks = 4, .bandwidth = gigabit});
  EXPECT_DOUBLE_EQ(cost.bytes_sent, 2 * 4 * parameters * 3 / 4);
  EXPECT_DOUBLE_EQ(cost.exchange, cost.bytes_sent / gigabit);
}

TEST(ClusterCost, OneRankExchangesNothing) {
  RunConfig config = paper_mnist();
  config.training.accumulate = 3;
  const ClusterCost cost = cost_of(config, {.ranks = 1, .bandwidth = gigabit, .latency = 1});
  EXPECT_EQ(cost.bytes_sent, 0);
  EXPECT_EQ(cost.exchange, 0);
  EXPECT_DOUBLE_EQ(cost.seconds(), 3 * 1.2 + 0.05);
  EXPECT_DOUBLE_EQ(cost.tokens_per_second(), 3 * 7840 / (3 * 1.2 + 0.05));
  EXPECT_DOUBLE_EQ(cost.efficiency, 1);
  EXPECT_DOUBLE_EQ(cost.memory, memory_needs(config, true).total());
}

TEST(ClusterCost, OnlyWhatDoesNotFitBehindTheBackwardPassTakesTime) {
  const RunConfig config = paper_mnist();
  const double bytes = cost_of(config, {.ranks = 4, .bandwidth = gigabit}).bytes_sent;
  // Half of the backward pass, and five quarters of it.
  const ClusterCost fast = cost_of(config, {.ranks = 4, .bandwidth = bytes / 0.4, .latency = 1e-3});
  EXPECT_NEAR(fast.hidden, 0.4, 1e-12);
  EXPECT_NEAR(fast.seconds(), 1.25 + 2 * 2 * 1e-3, 1e-12);
  const ClusterCost slow = cost_of(config, {.ranks = 4, .bandwidth = bytes / 1.0, .latency = 1e-3});
  EXPECT_NEAR(slow.hidden, 0.8, 1e-12);
  EXPECT_NEAR(slow.seconds(), 1.25 + 0.2 + 2 * 2 * 1e-3, 1e-12);
}

TEST(ClusterCost, EfficiencyGrowsWithTheBandwidthUpToOne) {
  for (const std::int64_t ranks : {2, 3, 64, 1000}) {
    double last = 0;
    for (const double bandwidth : {1e6, 1e7, 1e8, 1e9}) {
      const double now = cost_of(paper_mnist(), {.ranks = ranks, .bandwidth = bandwidth}).efficiency;
      EXPECT_GE(now, last) << ranks << " ranks";
      last = now;
    }
    EXPECT_LT(cost_of(paper_mnist(), {.ranks = ranks, .bandwidth = 1e6}).efficiency, last);
    EXPECT_NEAR(cost_of(paper_mnist(), {.ranks = ranks, .bandwidth = no_limit}).efficiency, 1, 1e-12);
  }
}

TEST(ClusterCost, TheRankWithMostPassesDecides) {
  RunConfig config = paper_mnist();
  config.training.accumulate = 8;
  struct Case {
    std::int64_t ranks, passes, most;
  };
  for (const Case& expected :
       std::vector<Case>{{1, 8, 8}, {3, 8, 3}, {4, 8, 2}, {7, 8, 2}, {8, 8, 1}, {9, 9, 1}}) {
    const ClusterCost cost = cost_of(config, {.ranks = expected.ranks, .bandwidth = no_limit});
    EXPECT_EQ(cost.passes, expected.passes) << expected.ranks;
    EXPECT_EQ(cost.passes_per_rank, expected.most) << expected.ranks;
    EXPECT_DOUBLE_EQ(cost.work, static_cast<double>(expected.most) * 1.2 + 0.05);
    EXPECT_DOUBLE_EQ(cost.tokens, static_cast<double>(expected.passes) * 7840);
  }
}

TEST(ClusterCost, StatesTakeARoundForEveryDoublingOfTheStretches) {
  RunConfig config = paper_mnist();
  const ExchangeSizes sizes = exchange_sizes(config, 2);
  // Layers · batch · heads · (F·M + F) floats, in both directions.
  EXPECT_EQ(sizes.states, 4.0 * 8 * 10 * 8 * (32 * 32 + 32));
  EXPECT_EQ(sizes.state_gradients, sizes.states);
  struct Case {
    std::int64_t ranks;
    double rounds;
  };
  for (const Case& expected : std::vector<Case>{{2, 1}, {4, 2}, {7, 3}, {8, 3}}) {
    const ClusterCost cost = cost_of(
        config,
        {.ranks = expected.ranks, .sequence_ranks = expected.ranks, .bandwidth = gigabit, .latency = 1e-3});
    const double ranks = static_cast<double>(expected.ranks);
    const double states = expected.rounds * 2 * sizes.states;
    const double gradient = 2 * sizes.gradient * (ranks - 1) / ranks;
    EXPECT_EQ(cost.passes, 1);
    EXPECT_NEAR(cost.bytes_sent, states + gradient, 1e-6 * gradient);
    EXPECT_DOUBLE_EQ(cost.work, 1.2 / ranks + 0.05);
    // A message forwards and one backwards in every layer; the sum over the stretches is not hidden.
    EXPECT_NEAR(cost.exchange, (8 * 2 + 2) * expected.rounds * 1e-3 + (states + gradient) / gigabit, 1e-9);
    EXPECT_EQ(cost.hidden, 0);
  }
}

TEST(ClusterCost, StatesDoNotGrowWithTheLength) {
  RunConfig config = paper_mnist();
  const ExchangeSizes pictures = exchange_sizes(config, 2);
  // Sequences that may go on: sums are compensated.
  config.model.image_height = config.model.image_width = 0;
  const ExchangeSizes streams = exchange_sizes(config, 2);
  EXPECT_EQ(streams.states, 2 * pictures.states);
  EXPECT_EQ(streams.state_gradients, pictures.state_gradients);
  config.model.length *= 8;
  EXPECT_EQ(exchange_sizes(config, 2).states, streams.states);
}

TEST(ClusterCost, GroupsOfSequenceRanksShareThePasses) {
  RunConfig config = paper_mnist();
  config.training.accumulate = 4;
  const ClusterCost cost = cost_of(config, {.ranks = 8, .sequence_ranks = 4, .bandwidth = no_limit});
  EXPECT_EQ(cost.passes, 4);
  EXPECT_EQ(cost.passes_per_rank, 2);
  EXPECT_DOUBLE_EQ(cost.work, 2 * 1.2 / 4 + 0.05);
}

// What a run checks before it begins, and what the cost model states.
TEST(ClusterCost, RanksTakeTheirShareOfTheMemory) {
  RunConfig config = paper_mnist();
  const MemoryNeeds alone = memory_needs(config, true);
  const ExchangeSizes sizes = exchange_sizes(config, 4);
  config.training.sequence_ranks = 4;
  const MemoryNeeds stretch = memory_needs(config, true, 4);
  EXPECT_NEAR(stretch.tokens, alone.tokens / 4, 0.01 * alone.tokens);
  EXPECT_NEAR(stretch.parameters, alone.parameters + sizes.gradient * 3 / 4, 0.01 * sizes.gradient);
  EXPECT_DOUBLE_EQ(cost_of(config, {.ranks = 4, .sequence_ranks = 4, .bandwidth = gigabit}).memory,
                   stretch.total() + 2 * sizes.states);

  config.training.sequence_ranks = 1;
  config.training.accumulate = 64;
  const MemoryNeeds one = memory_needs(config, true), each = memory_needs(config, true, 64);
  EXPECT_NEAR(each.tokens, alone.tokens, 1);
  EXPECT_GT(one.tokens, alone.tokens);
  // A stack of partial sums, which ranks that compute one pass each do not have.
  EXPECT_LT(each.parameters, alone.parameters + 2 * sizes.gradient);
  EXPECT_GT(one.parameters, alone.parameters + 5 * sizes.gradient);
}

TEST(ClusterCost, RefusesWhatCannotBeDivided) {
  RunConfig config = paper_mnist();
  const auto refusal = [&](std::int64_t ranks, std::int64_t sequence_ranks) {
    return error_of<UsageError>(
        [&] { cost_of(config, {.ranks = ranks, .sequence_ranks = sequence_ranks, .bandwidth = gigabit}); });
  };
  EXPECT_THAT(refusal(8, 7), HasSubstr("divide the 8 ranks, got 7"));
  EXPECT_THAT(refusal(6, 3), HasSubstr("divides model.length = 784, got 3"));
  config.model.attention.layers = "linear,softmax";
  EXPECT_THAT(refusal(4, 2), HasSubstr("softmax"));
  EXPECT_GT(cost_of(config, {.ranks = 4, .bandwidth = gigabit}).efficiency, 0);
}

}  // namespace
}  // namespace linnet
