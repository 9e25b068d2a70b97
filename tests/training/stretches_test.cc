// Ranks that hold a stretch of every sequence each: the sum of their losses and of their gradients is that of
// the whole.
#include "training/stretches.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/segments.h"
#include "support/pass_example.h"
#include "support/ranks.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 171;

PassResult whole_result(const PassExample& example) {
  SegmentedTransformer transformer(example.network, example.batch, example.length, {});
  PassResult result;
  result.gradients.resize(static_cast<std::size_t>(example.network.table().size()));
  result.nats = transformer.accumulate(any_context(), example.pass(), 0.25f, {}, result.gradients);
  return result;
}

/// The sums over `size` ranks, each a thread, whose stretches end at the given steps.
PassResult result_of_ranks(const PassExample& example, const std::vector<std::int64_t>& ends,
                           bool recompute) {
  std::vector<PassResult> results(ends.size());
  with_ranks(static_cast<int>(ends.size()), [&](Communicator& rank) {
    const auto r = static_cast<std::size_t>(rank.rank());
    Context context(1);
    const std::int64_t first = r == 0 ? 0 : ends[r - 1];
    RankStretches stretches(rank);
    SegmentedTransformer transformer(example.network, example.batch, ends[r] - first,
                                     {.recompute = recompute});
    PassPiece piece;
    results[r].gradients.resize(static_cast<std::size_t>(example.network.table().size()));
    // The second time with states that have been used.
    for (int time = 0; time < 2; ++time) {
      std::ranges::fill(results[r].gradients, 0.0f);
      results[r].nats =
          transformer.accumulate(context, piece.of(example.pass(), first, ends[r] - first), 0.25f, {},
                                 results[r].gradients, {.position = first, .exchange = &stretches});
    }
  });
  PassResult sum = results.front();
  for (std::size_t r = 1; r < results.size(); ++r) {
    sum.nats += results[r].nats;
    for (std::size_t i = 0; i < sum.gradients.size(); ++i) sum.gradients[i] += results[r].gradients[i];
  }
  return sum;
}

void expect_the_whole(const PassExample& example, double tolerance = 1e-5) {
  const PassResult whole = whole_result(example);
  const std::int64_t n = example.length;
  using Ends = std::vector<std::int64_t>;
  for (const Ends& ends : {Ends{n}, Ends{n / 2, n}, Ends{1, n}, Ends{n - 1, n}, Ends{n / 3, 2 * n / 3, n},
                           Ends{n / 4, n / 2, 3 * n / 4, n}})
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << describe(example.config) << ", " << ends.size() << " ranks, the first of " << ends[0]
                   << " of " << n << " steps, recompute " << recompute << ", seed " << seed);
      const PassResult ranks = result_of_ranks(example, ends, recompute);
      expect_close(ranks, whole, example.network.table(), tolerance);
    }
}

TEST(Stretches, GiveTheGradientsOfTheWholeSequence) {
  ModelConfig config = long_config();
  for (const Positions positions :
       {Positions::learned, Positions::sinusoidal, Positions::none, Positions::rotary}) {
    config.positions = positions;
    config.width = positions == Positions::rotary ? 8 : 6;
    for (const std::int64_t batch : {1, 3}) expect_the_whole(PassExample(config, batch, 130, seed));
  }
}

TEST(Stretches, GiveTheGradientsOfDecayAndOfMapsWithLogScales) {
  ModelConfig config = long_config();
  config.attention.linear.decay = Decay::learned;
  expect_the_whole(PassExample(config, 2, 129, seed));
  config.attention.linear.decay = Decay::fixed;
  expect_the_whole(PassExample(config, 2, 129, seed));
  config.attention.linear.decay = Decay::none;
  config.width = 8;
  for (const char* const map : {"favor", "favor-hyperbolic", "relu", "identity"}) {
    config.attention.linear.feature_map = map;
    config.attention.normalise = std::string(map) == "identity" ? Normalise::none : Normalise::sum;
    const bool relu = std::string(map) == "relu";
    config.attention.epsilon = relu ? 0.1 : 1e-6;
    // The slope of relu jumps where rounding moves a number across 0.
    expect_the_whole(PassExample(config, 2, 129, seed), relu ? 1e-4 : 3e-5);
  }
  config.attention.linear.feature_map = "favor";
  config.attention.normalise = Normalise::sum;
  config.attention.epsilon = 1e-6;
  for (const Decay decay : {Decay::fixed, Decay::learned}) {
    config.attention.linear.decay = decay;
    expect_the_whole(PassExample(config, 2, 129, seed), 3e-5);
  }
}

TEST(Stretches, GiveTheGradientsOfModelsThatSeeBothSides) {
  ModelConfig config = long_config();
  config.objective = Objective::masked;
  expect_the_whole(PassExample(config, 2, 130, seed));
  config.width = 8;
  config.attention.linear.feature_map = "favor";
  expect_the_whole(PassExample(config, 2, 130, seed), 3e-5);
  config = long_config();
  config.vocabulary = 0;
  config.columns = 2;
  config.objective = Objective::same_step;
  config.bidirectional = true;
  config.targets = 2;
  expect_the_whole(PassExample(config, 2, 130, seed));
}

TEST(Stretches, GiveTheGradientsOfEntriesThatEndEarlier) {
  for (const Objective objective : {Objective::next_token, Objective::masked}) {
    ModelConfig config = long_config();
    config.objective = objective;
    for (const char* const map : {"elu", "favor"}) {
      config.width = 8;
      config.attention.linear.feature_map = map;
      PassExample example(config, 4, 130, seed);
      example.key_lengths = {130, 65, 1, 64};
      for (std::int64_t b = 0; b < example.batch; ++b)
        for (std::int64_t i = example.key_lengths[static_cast<std::size_t>(b)]; i < example.length; ++i)
          example.targets[static_cast<std::size_t>(b * example.length + i)] = -1;
      expect_the_whole(example, 3e-5);
    }
  }
}

TEST(Stretches, GiveTheGradientsOfRealNumbers) {
  ModelConfig config = long_config();
  config.vocabulary = 0;
  config.columns = 2;
  config.relative = config.relative_inputs = true;
  expect_the_whole(PassExample(config, 2, 130, seed));
}

}  // namespace
}  // namespace linnet
