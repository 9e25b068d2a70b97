// Given tokens in the recurrent form, what a stream says of its next token, prompts of many streams, and
// sessions that grow and shrink.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/targets.h"
#include "support/contexts.h"
#include "support/errors.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 151;

/// Those of every session test, and the other families with a recurrent form.
std::vector<ModelConfig> configs() {
  std::vector<ModelConfig> result = session_configs();
  for (const Family family : {Family::local, Family::strided}) {
    ModelConfig config = result.front();
    config.attention.family = family;
    config.attention.local.window = 30;
    result.push_back(config);
  }
  ModelConfig config = result.front();
  config.attention.linear.decay = Decay::fixed;
  result.push_back(config);
  return result;
}

std::vector<float> logits_of(Session& session, const Model& model, std::int64_t stream) {
  std::vector<float> logits(static_cast<std::size_t>(model.config().vocabulary));
  session.logits(stream, logits);
  return logits;
}

void expect_observe_leaves_what_step_leaves(const ModelConfig& config, const Session::Options& options) {
  SCOPED_TRACE(testing::Message() << describe(config) << ", cache " << options.cache << ", "
                                  << options.threads << " threads, seed " << seed);
  const auto model = random_model(config, seed);
  const std::int64_t streams = options.cache ? 11 : 2;
  Session drawing(model, streams, options), observing(model, streams, options);
  for (Session* session : {&drawing, &observing})
    for (std::int64_t i = 0; i < streams; ++i)
      session->begin(i, some_label(config), seeded(static_cast<std::uint64_t>(i)));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(streams));
  for (int step = 0; step < 12; ++step) {
    drawing.step(tokens);
    observing.observe(tokens);
  }
  const std::int64_t some[] = {1, 0};
  drawing.step(std::span(tokens).first(2), some);
  observing.observe(std::span(tokens).first(2), some);
  for (std::int64_t i = 0; i < streams; ++i) {
    EXPECT_EQ(observing.position(i), i < 2 ? 13 : 12);
    EXPECT_EQ(observing.save(i), drawing.save(i)) << "stream " << i;
    EXPECT_EQ(draw(observing, i, 3), draw(drawing, i, 3)) << "stream " << i;
  }
}

TEST(Session, ObserveLeavesWhatAStepThatDrewTheTokensLeaves) {
  kernels::for_every_target([] {
    for (const ModelConfig& config : configs())
      for (const int threads : {1, 3}) expect_observe_leaves_what_step_leaves(config, {.threads = threads});
  });
  expect_observe_leaves_what_step_leaves(configs().front(), {.cache = false, .threads = 1});
}

TEST(Session, ObserveIsPrefillUpToRounding) {
  for (const ModelConfig& config : configs()) {
    SCOPED_TRACE(testing::Message() << describe(config) << ", seed " << seed);
    const auto model = random_model(config, seed);
    const auto tokens = random_tokens(300, config.vocabulary, seed);
    Session session(model, 2);
    session.begin(0, some_label(config), greedy());
    session.begin(1, some_label(config), greedy());
    const std::int64_t observing = 0;
    for (const std::int32_t& token : tokens) session.observe(std::span(&token, 1), std::span(&observing, 1));
    session.prefill(1, tokens);
    EXPECT_EQ(session.position(0), session.position(1));
    EXPECT_LT(relative_error(logits_of(session, *model, 0), logits_of(session, *model, 1)), 2e-5);
  }
}

TEST(Session, LogitsAreThoseOfForwardAndMoveNothing) {
  for (const bool cache : {true, false})
    for (const ModelConfig& config : configs()) {
      SCOPED_TRACE(testing::Message() << describe(config) << ", cache " << cache << ", seed " << seed);
      const auto model = random_model(config, seed);
      const std::int64_t length = 40;
      const auto tokens = random_tokens(length, config.vocabulary, seed);
      std::vector<std::int32_t> inputs = {config.first_input(some_label(config))};
      inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
      const Tensor expected = model->forward(any_context(), inputs, 1, length);
      Session session(model, 2, {.cache = cache, .threads = 2});
      session.begin(1, some_label(config), greedy());
      const std::int64_t stream = 1;
      const auto width = static_cast<std::size_t>(config.vocabulary);
      std::vector<float> probabilities(width);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto before = session.save(1);
        const std::vector<float> logits = logits_of(session, *model, 1);
        session.probabilities(1, probabilities);
        EXPECT_EQ(session.save(1), before);
        EXPECT_LT(relative_error(logits, expected.span<float>().subspan(i * width, width)), 2e-5) << i;
        EXPECT_NEAR(std::accumulate(probabilities.begin(), probabilities.end(), 0.0), 1, 1e-5);
        EXPECT_NEAR(std::log(probabilities[1] / probabilities[2]), logits[1] - logits[2], 1e-4);
        Session other(model, 1, {.cache = cache, .threads = 1});
        other.restore(0, before);
        EXPECT_EQ(draw(other, 0, 1)[0], largest(logits));
        session.observe(std::span(&tokens[i], 1), std::span(&stream, 1));
      }
      EXPECT_EQ(session.position(0), 0);
    }
}

TEST(Session, PrefillOfManyStreamsIsPrefillOfEach) {
  kernels::for_every_target([] {
    for (ModelConfig config : configs())
      for (const WeightType weights : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
        if (weights != WeightType::f32 && config.attention.family != Family::linear) continue;
        config.weights = weights;
        config.length = 1400;
        SCOPED_TRACE(testing::Message() << describe(config) << ", " << name_of(weights) << ", seed " << seed);
        const auto model = random_model(config, seed);
        // Streams at three positions, with prompts of several lengths.
        const std::int64_t lengths[] = {700, 5, 700, 0, 90, 512, 700, 1100, 5, 512, 30};
        const std::int64_t count = std::ssize(lengths);
        const auto tokens = random_tokens(1100 + count, config.vocabulary, seed);
        Session each(model, count), together(model, count, {.threads = 3});
        std::vector<std::int64_t> streams;
        std::vector<std::span<const std::int32_t>> prompts;
        for (std::int64_t i = 0; i < count; ++i) {
          for (Session* session : {&each, &together}) {
            session->begin(i, some_label(config), seeded(static_cast<std::uint64_t>(i)));
            if (i >= 8) session->prefill(i, std::span(tokens).first(i == 8 ? 7 : 30));
          }
          const std::int64_t stream = count - 1 - i;
          streams.push_back(stream);
          prompts.push_back(std::span(tokens).subspan(static_cast<std::size_t>(stream),
                                                      static_cast<std::size_t>(lengths[stream])));
        }
        together.prefill(streams, prompts);
        for (std::size_t i = 0; i < streams.size(); ++i) each.prefill(streams[i], prompts[i]);
        for (std::int64_t i = 0; i < count; ++i)
          ASSERT_TRUE(together.save(i) == each.save(i)) << "stream " << i;
      }
  });
}

TEST(Session, PrefillOfManyWithoutACacheIsPrefillOfEach) {
  const auto model = random_model(configs().front(), seed);
  const auto tokens = random_tokens(20, 11, seed);
  Session each(model, 2, no_cache), together(model, 2, no_cache);
  const std::int64_t streams[] = {0, 1};
  const std::span<const std::int32_t> prompts[] = {tokens, std::span(tokens).first(3)};
  together.prefill(streams, prompts);
  for (std::size_t i = 0; i < 2; ++i) {
    each.prefill(streams[i], prompts[i]);
    EXPECT_EQ(together.save(streams[i]), each.save(streams[i]));
  }
}

TEST(Session, ResizeKeepsStreamsAndBeginsNewOnes) {
  for (const bool cache : {true, false})
    for (const ModelConfig& config : configs()) {
      SCOPED_TRACE(testing::Message() << describe(config) << ", cache " << cache << ", seed " << seed);
      const auto model = random_model(config, seed);
      const Session::Options options{.cache = cache, .threads = 3};
      Session session(model, 3, options), fresh(model, 5, options), alone(model, 3, options);
      for (Session* each : {&session, &alone}) {
        each->begin(1, some_label(config), seeded(9));
        draw(*each, 1, 10);
        each->prefill(2, random_tokens(30, config.vocabulary, seed));
      }
      session.resize(5);
      EXPECT_EQ(session.streams(), 5);
      for (std::int64_t i = 0; i < 5; ++i)
        EXPECT_EQ(session.save(i), i < 3 ? alone.save(i) : fresh.save(i)) << "stream " << i;
      std::vector<std::int32_t> tokens(5);
      session.step(tokens);
      for (std::int64_t i = 0; i < 5; ++i)
        EXPECT_EQ(tokens[static_cast<std::size_t>(i)], draw(i < 3 ? alone : fresh, i, 1)[0])
            << "stream " << i;
      session.resize(2);
      EXPECT_EQ(session.streams(), 2);
      EXPECT_THROW(session.position(2), Error);
      EXPECT_EQ(draw(session, 1, 10), draw(alone, 1, 10));
      session.resize(3);
      EXPECT_EQ(session.position(2), 0) << "a stream that was dropped came back";
      EXPECT_EQ(session.save(2), Session(model, 3, options).save(2));
    }
}

TEST(Session, RefusedTokensAndSizesMoveNothing) {
  for (const bool cache : {true, false}) {
    ModelConfig config = configs().front();
    config.positions = Positions::learned;
    config.length = 30;
    const auto model = random_model(config, seed);
    Session session(model, 3, {.cache = cache, .threads = 1});
    const auto prompt = random_tokens(29, config.vocabulary, seed);
    session.prefill(2, prompt);
    std::vector<std::vector<std::byte>> before;
    for (std::int64_t i = 0; i < 3; ++i) before.push_back(session.save(i));
    const std::vector<std::int64_t> two = {0, 1}, twice = {1, 1}, outside = {0, 3}, far = {0, 2};
    const std::vector<std::int32_t> good = {1, 2}, bad = {1, 11}, negative = {-1, 0}, one = {1};
    const auto expect_refused = [](const std::function<void()>& action, const char* sentence) {
      EXPECT_NE(error_of(action).find(sentence), std::string::npos) << error_of(action);
    };
    expect_refused([&] { session.observe(bad, two); },
                   "[observe] expected tokens in 0 … 10, got 11 in stream");
    expect_refused([&] { session.observe(negative, two); }, "[observe] expected tokens in 0 … 10, got -1");
    expect_refused([&] { session.observe(good, twice); }, "[observe] expected every stream at most once");
    expect_refused([&] { session.observe(good, outside); }, "expected a stream in 0 … 2, got 3");
    expect_refused([&] { session.observe(one, two); }, "[observe] expected as many tokens as streams");
    expect_refused([&] { session.observe(good); }, "[observe] expected as many tokens as streams");
    const std::span<const std::int32_t> prompts[] = {good, bad}, long_ones[] = {good, good};
    expect_refused([&] { session.prefill(two, prompts); }, "[prefill] expected tokens in 0 … 10, got 11");
    expect_refused([&] { session.prefill(two, std::span(prompts).first(1)); }, "[prefill] expected as many");
    expect_refused([&] { session.prefill(twice, long_ones); },
                   "[prefill] expected every stream at most once");
    expect_refused([&] { session.prefill(far, long_ones); }, "expected at most 30 steps");
    std::vector<float> row(11), wrong(12);
    expect_refused([&] { session.logits(0, wrong); }, "[logits] expected memory for 11 numbers");
    expect_refused([&] { session.probabilities(0, {}); }, "[probabilities] expected memory for 11 numbers");
    expect_refused([&] { session.logits(3, row); }, "expected a stream in 0 … 2, got 3");
    expect_refused([&] { session.resize(0); }, "streams, got 0");
    expect_refused([&] { session.resize(std::int64_t{1} << 40); }, "streams, got");
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(session.save(i), before[static_cast<std::size_t>(i)]);
    draw(session, 2, 1);
    expect_refused([&] { session.logits(2, row); }, "expected at most 30 steps");
    expect_refused([&] { session.observe(good, far); }, "expected at most 30 steps");
    EXPECT_EQ(session.position(0), 0);
  }
}

}  // namespace
}  // namespace linnet
