// Recomputation gives the bits of keeping everything; segments give the loss and the gradients of the whole
// sequence, or where they are truncated those of passes that continue given states.
#include "model/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/contexts.h"
#include "support/errors.h"
#include "support/numbers.h"
#include "support/pass_example.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 151;

PassResult result_of(const PassExample& example, const PassBounds& bounds, const Dropout& dropout = {}) {
  SegmentedTransformer transformer(example.network, example.batch, example.length, bounds);
  PassResult result;
  result.gradients.resize(static_cast<std::size_t>(example.network.table().size()));
  // The second time in memory that has been used.
  for (int time = 0; time < 2; ++time) {
    std::ranges::fill(result.gradients, 0.0f);
    result.nats = transformer.accumulate(any_context(), example.pass(), 0.25f, dropout, result.gradients);
  }
  return result;
}

void expect_same_bits(const PassExample& example, const Dropout& dropout = {}) {
  SCOPED_TRACE(describe(example.config));
  const PassResult kept = result_of(example, {}, dropout),
                   computed = result_of(example, {.recompute = true}, dropout);
  EXPECT_EQ(kept.nats, computed.nats);
  EXPECT_EQ(kept.gradients, computed.gradients);
  EXPECT_GT(norm(kept.gradients), 0);
}

TEST(Recompute, GivesTheBitsOfKeepingEverything) {
  for (const NormOrder norm : {NormOrder::pre, NormOrder::post}) {
    ModelConfig config = tiny_config();
    config.length = 70;
    config.norm = norm;
    for (const std::int64_t layers : {1, 2, 5}) {
      config.layers = layers;
      for (const float rate : {0.0f, 0.3f}) expect_same_bits(PassExample(config, 3, 67, seed), {rate, 9});
    }
  }
  expect_same_bits(
      PassExample(with_other_blocks(small_config(), "linear,local,lsh,softmax,strided"), 2, 65, seed));
}

TEST(Recompute, GivesTheBitsOfAnEncoderAndItsDecoder) {
  ModelConfig config = tiny_config();
  config.encoder_layers = 2;
  config.source_length = 9;
  config.source_vocabulary = 7;
  expect_same_bits(PassExample(config, 3, 6, seed), {0.2f, 5});
}

TEST(Recompute, TakesTheMemoryOfOneLayer) {
  ModelConfig config = small_config();
  config.layers = 8;
  const double kept = TrainingTransformer::floats_per_token(config),
               computed = TrainingTransformer::floats_per_token(config, true);
  const double layer = Block::Saved::floats_per_token(block_parts_of(config, Family::linear));
  EXPECT_DOUBLE_EQ(kept - computed, 7 * layer);
}

void expect_gradients_of_the_whole(const PassExample& example, double tolerance = 1e-5) {
  const PassResult whole = result_of(example, {});
  for (const std::int64_t segment : {1, 7, 63, 64, 65, 127, 128, 129}) {
    if (segment >= example.length) continue;
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(testing::Message() << describe(example.config) << ", segments of " << segment
                                      << " steps, recompute " << recompute << ", seed " << seed);
      const PassResult cut = result_of(example, {.recompute = recompute, .segment = segment});
      expect_close(cut, whole, example.network.table(), tolerance);
    }
  }
}

TEST(Segments, GiveTheGradientsOfTheWholeSequence) {
  ModelConfig config = long_config();
  for (const Positions positions :
       {Positions::learned, Positions::sinusoidal, Positions::none, Positions::rotary}) {
    config.positions = positions;
    config.width = positions == Positions::rotary ? 8 : 6;
    for (const std::int64_t batch : {1, 3})
      expect_gradients_of_the_whole(PassExample(config, batch, 130, seed));
  }
}

TEST(Segments, GiveTheGradientsOfDecayAndOfMapsWithLogScales) {
  ModelConfig config = long_config();
  config.attention.linear.decay = Decay::learned;
  expect_gradients_of_the_whole(PassExample(config, 2, 129, seed));
  config.attention.linear.decay = Decay::none;
  config.width = 8;
  for (const char* const map : {"favor", "favor-hyperbolic"}) {
    config.attention.linear.feature_map = map;
    expect_gradients_of_the_whole(PassExample(config, 2, 129, seed), 3e-5);
  }
  config.attention.linear.decay = Decay::learned;
  expect_gradients_of_the_whole(PassExample(config, 2, 129, seed), 3e-5);
}

TEST(Segments, GiveTheGradientsOfLocalLayers) {
  ModelConfig config = with_other_blocks(long_config(), "linear,local,linear");
  for (const std::int64_t window : {1, 3, 64, 150}) {
    config.attention.local.window = window;
    expect_gradients_of_the_whole(PassExample(config, 2, 130, seed));
  }
}

TEST(Segments, GiveTheGradientsOfEntriesThatEndEarlier) {
  PassExample example(long_config(), 4, 130, seed);
  example.key_lengths = {130, 65, 1, 64};
  for (std::int64_t b = 0; b < example.batch; ++b)
    for (std::int64_t i = example.key_lengths[static_cast<std::size_t>(b)]; i < example.length; ++i)
      example.targets[static_cast<std::size_t>(b * example.length + i)] = -1;
  expect_gradients_of_the_whole(example);
}

TEST(Segments, GiveTheGradientsOfRealNumbers) {
  ModelConfig config = long_config();
  config.vocabulary = 0;
  config.columns = 2;
  for (const bool relative : {false, true}) {
    config.relative = config.relative_inputs = relative;
    expect_gradients_of_the_whole(PassExample(config, 2, 130, seed));
  }
}

TEST(Segments, TruncatedOnesAreThosePassesWithGivenStates) {
  const PassExample example(long_config(), 2, 130, seed);
  const PassResult truncated = result_of(example, {.segment = 50, .truncate = true});
  const PassResult exact = result_of(example, {.segment = 50});
  EXPECT_NEAR(truncated.nats, exact.nats, 1e-6 * exact.nats);
  EXPECT_GT(relative_error(truncated.gradients, exact.gradients), 1e-3);

  TrainingTransformer transformer(example.network, example.batch, 50);
  std::vector<float> gradients(exact.gradients.size());
  std::vector<RecurrentState> states;
  double nats = 0;
  for (const std::int64_t first : {0, 50, 100}) {
    const std::int64_t count = std::min<std::int64_t>(50, example.length - first);
    std::vector<std::int32_t> ids, targets;
    for (std::int64_t b = 0; b < example.batch; ++b)
      for (std::int64_t i = first; i < first + count; ++i) {
        ids.push_back(example.ids[static_cast<std::size_t>(b * example.length + i)]);
        targets.push_back(example.targets[static_cast<std::size_t>(b * example.length + i)]);
      }
    states.emplace_back(example.network, example.batch);
    const PassPart part{.position = first,
                        .initial = first > 0 ? &states[states.size() - 2] : nullptr,
                        .final = &states.back()};
    nats += transformer.forward(any_context(),
                                {.batch = example.batch, .length = count, .ids = ids, .targets = targets},
                                0.25f, {}, part);
    transformer.backward(any_context(), gradients, part);
  }
  EXPECT_EQ(nats, truncated.nats);
  EXPECT_EQ(gradients, truncated.gradients);
}

TEST(Segments, ASegmentThatHoldsEverythingIsTheWholePass) {
  const PassExample example(long_config(), 2, 64, seed);
  const PassResult whole = result_of(example, {});
  for (const std::int64_t segment : {64, 65, 1000}) {
    const PassResult cut = result_of(example, {.segment = segment});
    EXPECT_EQ(cut.nats, whole.nats);
    EXPECT_EQ(cut.gradients, whole.gradients);
  }
}

TEST(Segments, DropoutDrawsOtherNumbersInEverySegmentAndTheSameEveryTime) {
  const PassExample example(long_config(), 1, 130, seed);
  const PassBounds bounds{.segment = 65};
  const PassResult once = result_of(example, bounds, {0.5f, 3}),
                   again = result_of(example, bounds, {0.5f, 3});
  EXPECT_EQ(once.gradients, again.gradients);
  EXPECT_NE(once.gradients, result_of(example, bounds, {0.5f, 4}).gradients);
}

TEST(LongSequences, HaveTheLossThatScoreGives) {
  ModelConfig config = tiny_config();
  config.length = 70'000;
  config.positions = Positions::sinusoidal;
  const auto model = random_model(config, seed);
  const std::int64_t lengths[] = {config.length, 65'537};
  std::vector<std::int32_t> ids, targets;
  double expected = 0;
  for (const std::int64_t length : lengths) {
    const auto tokens = random_tokens(length, config.vocabulary, seed + static_cast<std::uint64_t>(length));
    for (const float log_probability : model->score(any_context(), tokens)) expected -= log_probability;
    ids.push_back(config.first_input(-1));
    ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
    targets.insert(targets.end(), tokens.begin(), tokens.end());
    ids.resize((targets.size() + 69'999) / 70'000 * 70'000, 0);
    targets.resize(ids.size(), -1);
  }
  Transformer transformer(network_of(*model));
  std::vector<float> nll(ids.size());
  const double nats =
      transformer.loss(any_context(), ids, targets, 2, config.length, nll, std::span(lengths));
  EXPECT_NEAR(nats, expected, 1e-5 * expected);
  double sum = 0;
  for (const float value : nll) sum += value;
  EXPECT_NEAR(sum, expected, 1e-5 * expected);
}

TEST(Segments, RefuseModelsThatNeedTheWholeSequence) {
  const auto error = [](const ModelConfig& config) {
    return error_of<UsageError>([&] { check_segments(config); });
  };
  ModelConfig config = tiny_config();
  EXPECT_NO_THROW(check_segments(config));
  config.attention.family = Family::softmax;
  EXPECT_THAT(error(config), testing::HasSubstr("fixed size, got softmax"));
  config = tiny_config();
  config.objective = Objective::masked;
  EXPECT_THAT(error(config), testing::HasSubstr("causal"));
  config = tiny_config();
  config.encoder_layers = 1;
  config.source_length = 4;
  EXPECT_THAT(error(config), testing::HasSubstr("encoder"));
  config = tiny_config();
  config.objective = Objective::classify;
  config.classes = 3;
  config.bidirectional = false;
  EXPECT_THAT(error(config), testing::HasSubstr("classifier"));
}

}  // namespace
}  // namespace linnet
