// Steps on one thread: they allocate nothing, stay on the thread that calls them, and do not slow down where
// a state fades away.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "linnet/generation.h"
#include "support/allocations.h"
#include "support/models.h"

namespace linnet {
namespace {

/// Some 200,000 parameters: as large as a model for steps of a few microseconds gets.
ModelConfig stream_config(WeightType weights, OutputDistribution head) {
  ModelConfig config;
  config.layers = 4;
  config.heads = 4;
  config.width = 64;
  config.feed_forward = 256;
  config.positions = Positions::none;
  config.attention.linear.decay = Decay::fixed;
  config.vocabulary = 64;
  config.head = head;
  config.weights = weights;
  return config;
}

std::int64_t allocations_of(Session& session, std::int64_t steps) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(session.streams()));
  const std::int64_t before = allocations::count;
  for (std::int64_t i = 0; i < steps; ++i) session.step(tokens);
  return allocations::count - before;
}

TEST(RealTime, TheCountIsAlive) {
  const std::int64_t before = allocations::count;
  delete new volatile int(1);
  EXPECT_GT(allocations::count, before);
  const std::int64_t between = allocations::count;
  EXPECT_EQ(Tensor::of<float>({10}).size(), 10);
  EXPECT_GT(allocations::count, between);  // its memory; a compiler may leave out that of its shape
}

TEST(RealTime, AHundredThousandStepsAllocateNothing) {
  for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics}) {
    Session session(Model::random(stream_config(WeightType::f32, head), 1), 1, {.threads = 1});
    EXPECT_EQ(allocations_of(session, 50'000), 0) << name_of(head);
  }
}

TEST(RealTime, NorWithOtherBlocksInEveryLayer) {
  ModelConfig config = with_other_blocks(stream_config(WeightType::f32, OutputDistribution::categorical),
                                         "linear,local,linear,local");
  config.attention.local.window = 100;
  for (const std::int64_t streams : {1, 70}) {
    Session session(Model::random(config, 1), streams, {.threads = 1});
    EXPECT_EQ(allocations_of(session, 1000), 0) << streams << " streams";
  }
}

TEST(RealTime, NorWithManyStreamsAndOtherSampling) {
  for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics}) {
    for (const std::int64_t streams : {3, 70}) {
      Session session(Model::random(stream_config(WeightType::f32, head), 1), streams, {.threads = 1});
      for (std::int64_t i = 0; i < streams; ++i)
        session.begin(i, -1, {.temperature = 0.7, .top_k = 20, .top_p = 0.9, .seed = 5});
      EXPECT_EQ(allocations_of(session, 300), 0) << name_of(head) << " " << streams;
      session.begin(0, -1, {});
      EXPECT_EQ(allocations_of(session, 10), 0);
    }
  }
}

TEST(RealTime, ObservedTokensAndLogitsAllocateNothing) {
  for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics})
    for (const std::int64_t streams : {1, 70}) {
      const auto model = Model::random(stream_config(WeightType::f32, head), 1);
      Session session(model, streams, {.threads = 1});
      const std::vector<std::int32_t> tokens(static_cast<std::size_t>(streams), 7);
      const std::vector<std::int64_t> one = {streams - 1};
      std::vector<float> row(64);
      const auto use = [&] {
        const std::int64_t before = allocations::count;
        for (int i = 0; i < 50; ++i) {
          session.observe(tokens);
          session.observe(std::span(tokens).first(1), one);
          session.logits(0, row);
          session.probabilities(streams - 1, row);
        }
        return allocations::count - before;
      };
      EXPECT_EQ(use(), 0) << name_of(head) << " " << streams;
      session.resize(streams + 65);
      EXPECT_EQ(allocations_of(session, 50), 0) << name_of(head) << " " << streams << " after resize";
      session.resize(streams);
      EXPECT_EQ(use(), 0) << name_of(head) << " " << streams << " after resize";
    }
}

TEST(RealTime, NorWithALogitsProcessorAndLogProbabilities) {
  for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics})
    for (const std::int64_t streams : {1, 70})
      for (const SamplingOptions& sampling :
           {SamplingOptions{}, SamplingOptions{.temperature = 0.7, .top_k = 20, .top_p = 0.9}}) {
        Session session(Model::random(stream_config(WeightType::f32, head), 1), streams, {.threads = 1});
        for (std::int64_t i = 0; i < streams; ++i) session.set_sampling(i, sampling);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(streams));
        std::vector<float> log_probabilities(tokens.size());
        const Session::StepOptions options = {
            .process_logits = [](std::int64_t, std::int64_t, std::span<float> logits) { logits[7] -= 1; },
            .log_probabilities = log_probabilities};
        const std::int64_t before = allocations::count;
        for (int i = 0; i < 200; ++i) session.step(tokens, options);
        EXPECT_EQ(allocations::count - before, 0) << name_of(head) << " " << streams;
      }
}

TEST(RealTime, StepsOfSeveralFieldsAllocateNothing) {
  for (const std::int64_t streams : {1, 70}) {
    ModelConfig config = stream_config(WeightType::f32, OutputDistribution::categorical);
    config.fields = "64,5,30";
    Session session(Model::random(config, 1), streams, {.threads = 1});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(3 * streams));
    const std::int64_t before = allocations::count;
    for (int i = 0; i < 200; ++i) {
      session.step(tokens);
      session.observe(tokens);
    }
    EXPECT_EQ(allocations::count - before, 0) << streams;
  }
}

TEST(RealTime, StepsOfADecoderWithASourceAllocateNothing) {
  for (const std::int64_t streams : {1, 70}) {
    ModelConfig config = stream_config(WeightType::f32, OutputDistribution::categorical);
    config.encoder_layers = 1;
    config.source_length = 30;
    Session session(Model::random(config, 1), streams, {.threads = 1});
    const std::vector<std::int32_t> source(20, 7);
    for (std::int64_t i = 0; i < streams; ++i) session.begin(i, source, {.seed = 5});
    EXPECT_EQ(allocations_of(session, 200), 0) << streams;
  }
}

TEST(RealTime, StepsOfRealNumbersAllocateNothing) {
  for (const Objective objective : {Objective::next_token, Objective::same_step})
    for (const std::int64_t streams : {1, 70}) {
      ModelConfig config = stream_config(WeightType::f32, OutputDistribution::categorical);
      config.vocabulary = 0;
      config.columns = 2;
      config.objective = objective;
      NumberSession session(Model::random(config, 1), streams, {.threads = 1});
      const std::vector<float> in(static_cast<std::size_t>(2 * streams), 0.5f);
      std::vector<float> out(in.size()), scale(2), freedom(2);
      const auto allocated = [&] {
        const std::int64_t before = allocations::count;
        for (int i = 0; i < 200; ++i) {
          session.step(in, out);
          session.densities(0, std::span(out).first(2), scale, freedom);
          session.draw(0, 3, scale);
          session.observe(in);
        }
        return allocations::count - before;
      };
      EXPECT_EQ(allocated(), 0) << name_of(objective) << " " << streams;
    }
}

// A few streams stay together in larger blocks than more of them are split into, and any thread may get any
// block.
TEST(RealTime, NorDoStepsOfSomeStreamsOnSeveralThreads) {
  ModelConfig config = stream_config(WeightType::f32, OutputDistribution::categorical);
  constexpr std::int64_t streams = 20;
  Session session(Model::random(config, 1), streams, {.threads = 4});
  config.vocabulary = 0;
  config.columns = 2;
  NumberSession numbers(Model::random(config, 1), streams, {.threads = 4});
  std::vector<std::int32_t> tokens(streams);
  std::vector<std::int64_t> some(streams);
  std::iota(some.begin(), some.end(), 0);
  const std::vector<float> in(2 * streams, 0.5f);
  std::vector<float> out(in.size());
  for (std::size_t count = 1; count <= streams; ++count) {
    const auto chosen = std::span(some).first(count);
    const std::int64_t before = allocations::count;
    for (int i = 0; i < 20; ++i) {
      session.step(std::span(tokens).first(count), chosen);
      session.observe(std::span(tokens).first(count), chosen);
      numbers.step(std::span(in).first(2 * count), std::span(out).first(2 * count), chosen);
    }
    EXPECT_EQ(allocations::count - before, 0) << count << " streams";
  }
}

TEST(RealTime, NarrowWeightsAllocateTheSameEveryStep) {
  for (const WeightType weights : {WeightType::bf16, WeightType::int8}) {
    Session session(Model::random(stream_config(weights, OutputDistribution::categorical), 1), 1,
                    {.threads = 1});
    const std::int64_t first = allocations_of(session, 200);
    EXPECT_EQ(allocations_of(session, 200), first) << name_of(weights);
  }
}

TEST(RealTime, BuiltOnOneThreadAndSteppedOnAnother) {
  const auto model = Model::random(stream_config(WeightType::f32, OutputDistribution::categorical), 1);
  Session here(model, 2, {.threads = 1}), there(model, 2, {.threads = 1});
  std::vector<std::int32_t> expected(2), tokens(2);
  std::int64_t made = -1;
  for (int i = 0; i < 20; ++i) here.step(expected);
  std::thread([&] {
    there.step(tokens);
    made = allocations_of(there, 19);
    for (std::int64_t i = 0; i < 2; ++i) EXPECT_EQ(there.position(i), 20);
  }).join();
  EXPECT_EQ(made, 0);
  here.step(expected);
  there.step(tokens);
  EXPECT_EQ(tokens, expected);
}

TEST(RealTime, TokensAreThoseOfAllThreads) {
  const auto model = Model::random(stream_config(WeightType::f32, OutputDistribution::categorical), 1);
  Session one(model, 5, {.threads = 1}), all(model, 5);
  std::vector<std::int32_t> expected(5), tokens(5);
  for (int i = 0; i < 50; ++i) {
    one.step(tokens);
    all.step(expected);
    ASSERT_EQ(tokens, expected);
  }
}

}  // namespace
}  // namespace linnet
