// Streams of a session: alone or among others, prefilled, forked, with and without a cache.
#include <gtest/gtest.h>

#include <thread>

#include "kernels/targets.h"
#include "linnet/error.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 101;

void expect_alone_as_among_seventy(const ModelConfig& config) {
  SCOPED_TRACE(describe(config));
  const auto model = random_model(config, seed);
  const std::int64_t label = some_label(config);
  const auto prompt = random_tokens(30, config.vocabulary, seed);
  Session alone(model, 1);
  alone.begin(0, label, seeded(7));
  alone.prefill(0, prompt);
  const auto expected = draw(alone, 0, 25);

  for (const int threads : {1, 2, 3, 8}) {
    Session session(model, 70, {.threads = threads});
    for (std::int64_t i = 0; i < 70; ++i)
      session.begin(i, label, seeded(static_cast<std::uint64_t>(i + 1000)));
    session.begin(37, label, seeded(7));
    for (std::int64_t i = 0; i < 70; i += 3)
      if (i != 37) session.prefill(i, std::span(prompt).first(static_cast<std::size_t>(1 + i % 20)));
    session.prefill(37, prompt);
    std::vector<std::int64_t> streams;
    std::vector<std::int32_t> actual, tokens(70);
    for (std::size_t step = 0; step < expected.size(); ++step) {
      // All in order, then a changing choice in a changing order.
      streams.clear();
      for (std::int64_t i = 0; i < 70; ++i) {
        const auto s = static_cast<std::int64_t>(step);
        const std::int64_t stream = step % 3 == 0 ? i : (i * 11 + s) % 70;
        if (step % 3 != 2 || stream == 37 || stream % 7 == s % 7) streams.push_back(stream);
      }
      session.step(std::span(tokens).first(streams.size()), streams);
      actual.push_back(tokens[static_cast<std::size_t>(std::ranges::find(streams, 37) - streams.begin())]);
    }
    EXPECT_EQ(actual, expected) << threads << " threads";
  }
}

TEST(Session, StreamDrawsAloneWhatItDrawsAmongSeventy) {
  kernels::for_every_target([] {
    for (ModelConfig config : session_configs()) {
      expect_alone_as_among_seventy(config);
      // Products of codes are exact. Those of bf16 may depend on the rows beside them (docs/numerics.md).
      config.weights = WeightType::int8;
      if (config.attention.family == Family::linear) expect_alone_as_among_seventy(config);
    }
  });
}

TEST(Session, StepOfAllIsStepOfEach) {
  const auto model = random_model(session_configs()[0], seed);
  Session all(model, 5), each(model, 5);
  for (std::int64_t i = 0; i < 5; ++i)
    for (Session* session : {&all, &each}) session->begin(i, -1, seeded(static_cast<std::uint64_t>(i)));
  std::vector<std::int32_t> a(5), b(5);
  for (int step = 0; step < 20; ++step) {
    all.step(a);
    for (std::int64_t i = 4; i >= 0; --i) b[static_cast<std::size_t>(i)] = draw(each, i, 1)[0];
    EXPECT_EQ(a, b) << "step " << step;
  }
  EXPECT_EQ(all.streams(), 5);
  EXPECT_EQ(all.position(3), 20);
}

TEST(Session, GreedyTokensAreTheReferences) {
  for (const ModelConfig& config : session_configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    Session session(model, 1);
    session.begin(0, some_label(config), greedy());
    const auto tokens = draw(session, 0, 100);
    std::vector<std::int32_t> inputs = {config.first_input(some_label(config))}, expected;
    inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
    const auto rows = reference::head_parameters(config, by_name(*model), inputs, 100);
    for (std::size_t t = 0; t < 100; ++t) {
      const auto columns = static_cast<std::size_t>(rows.columns);
      const auto p =
          reference::log_probabilities(config, std::span(rows.values).subspan(t * columns, columns));
      EXPECT_NEAR(p[static_cast<std::size_t>(tokens[t])], *std::ranges::max_element(p), 1e-4)
          << "position " << t;
    }
  }
}

TEST(Session, PrefillThenStepsIsSteppingAllTheWay) {
  for (const ModelConfig& config : session_configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    const std::int64_t label = some_label(config);
    Session session(model, 2);
    session.begin(0, label, greedy());
    const auto all = draw(session, 0, 350);
    for (const std::size_t given : {0u, 1u, 63u, 64u, 65u, 200u, 300u}) {
      SCOPED_TRACE(testing::Message() << given << " tokens given");
      session.begin(1, label, greedy());
      session.prefill(1, std::span(all).first(given));
      EXPECT_EQ(session.position(1), static_cast<std::int64_t>(given));
      std::vector<std::int32_t> again(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(given));
      const auto drawn = draw(session, 1, static_cast<std::int64_t>(all.size() - given));
      again.insert(again.end(), drawn.begin(), drawn.end());
      expect_same_greedy_tokens(*model, label, all, again);
    }
    // In pieces, with steps between them whose draws are the very tokens.
    session.begin(1, label, greedy());
    session.prefill(1, std::span(all).first(70));
    std::vector<std::int32_t> again(all.begin(), all.begin() + 70);
    for (const std::int32_t token : draw(session, 1, 5)) again.push_back(token);
    session.prefill(1, std::span(all).subspan(75, 1));
    session.prefill(1, std::span(all).subspan(76, 100));
    again.insert(again.end(), all.begin() + 75, all.begin() + 176);
    for (const std::int32_t token : draw(session, 1, 174)) again.push_back(token);
    expect_same_greedy_tokens(*model, label, all, again);
  }
}

TEST(Session, PrefillInPiecesIsPrefillAtOnceWhileOthersStep) {
  for (ModelConfig config : session_configs()) {
    SCOPED_TRACE(describe(config));
    config.length = 1400;
    const auto model = random_model(config, seed);
    const auto prompt = random_tokens(1300, config.vocabulary, seed);
    Session once(model, 2), pieces(model, 2);
    once.prefill(0, prompt);
    for (std::int64_t first = 0; first < 1300; first += Session::prefill_slice) {
      const std::int64_t count = std::min(Session::prefill_slice, 1300 - first);
      pieces.prefill(
          0, std::span(prompt).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
      draw(pieces, 1, 3);
    }
    EXPECT_EQ(pieces.save(0), once.save(0));
  }
}

TEST(Session, DrawsAreDecidedBySeedAndPosition) {
  for (const ModelConfig& config : session_configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    const std::int64_t label = some_label(config);
    Session session(model, 3);
    session.begin(0, label, seeded(3));
    session.begin(1, label, seeded(3));
    session.begin(2, label, seeded(4));
    const auto expected = draw(session, 0, 60);
    session.prefill(1, std::span(expected).first(25));
    EXPECT_EQ(draw(session, 1, 35), std::vector<std::int32_t>(expected.begin() + 25, expected.end()));
    EXPECT_NE(draw(session, 2, 60), expected);
  }
}

TEST(Session, WithoutCacheGivesTheSameGreedyTokens) {
  for (const ModelConfig& config : session_configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    const std::int64_t label = some_label(config);
    Session cached(model, 2), recomputing(model, 2, no_cache);
    const auto prompt = random_tokens(20, config.vocabulary, seed);
    for (Session* session : {&cached, &recomputing}) {
      session->begin(0, label, greedy());
      session->begin(1, label, greedy());
      session->prefill(1, prompt);
    }
    expect_same_greedy_tokens(*model, label, draw(cached, 0, 80), draw(recomputing, 0, 80));
    std::vector<std::int32_t> a = prompt, b = prompt;
    for (const std::int32_t token : draw(cached, 1, 40)) a.push_back(token);
    for (const std::int32_t token : draw(recomputing, 1, 40)) b.push_back(token);
    expect_same_greedy_tokens(*model, label, a, b);
    EXPECT_EQ(recomputing.position(1), 60);
  }
}

TEST(Session, ForkContinuesAsItsSourceWould) {
  for (const bool cache : {true, false})
    for (const ModelConfig& config : session_configs()) {
      SCOPED_TRACE(testing::Message() << describe(config) << ", cache " << cache);
      const auto model = random_model(config, seed);
      Session session(model, 4, {.capacity = 0, .cache = cache});
      SamplingOptions sampling = seeded(5);
      sampling.temperature = 0.9;
      session.begin(0, some_label(config), sampling);
      session.begin(1, some_label(config), greedy());
      draw(session, 1, 9);  // whatever the destination held before is gone
      draw(session, 0, 30);
      session.fork(1, 0, 5);
      session.fork(2, 0, 6);
      session.fork(3, 0, 6);
      EXPECT_EQ(session.position(1), 30);
      EXPECT_EQ(session.state_bytes(1), session.state_bytes(0));
      const auto same_seed = draw(session, 1, 30), two = draw(session, 2, 30), source = draw(session, 0, 30);
      EXPECT_EQ(same_seed, source);
      EXPECT_EQ(draw(session, 3, 30), two);
      EXPECT_NE(two, source);
      session.fork(0, 0, 9);  // onto itself: only the seed changes
      EXPECT_EQ(session.position(0), 60);
    }
}

TEST(Session, BeginForgetsEverything) {
  for (const bool cache : {true, false})
    for (const ModelConfig& config : session_configs()) {
      SCOPED_TRACE(testing::Message() << describe(config) << ", cache " << cache);
      const auto model = random_model(config, seed);
      Session session(model, 2, {.capacity = 0, .cache = cache});
      session.begin(0, some_label(config), seeded(1));
      const std::size_t empty = session.state_bytes(0);
      const auto expected = draw(session, 0, 20);
      session.begin(0, some_label(config), seeded(2));
      EXPECT_NE(draw(session, 0, 20), expected);
      session.begin(0, some_label(config), seeded(1));
      EXPECT_EQ(session.position(0), 0);
      EXPECT_EQ(session.state_bytes(0), empty);
      EXPECT_EQ(draw(session, 0, 20), expected);
    }
}

TEST(Session, BeginsByItselfWithTheStartTokenOrLabel0) {
  for (const ModelConfig& config : session_configs()) {
    SCOPED_TRACE(describe(config));
    const auto model = random_model(config, seed);
    Session session(model, 2);
    session.begin(1, config.classes > 0 ? 0 : -1, SamplingOptions{});
    EXPECT_EQ(draw(session, 0, 20), draw(session, 1, 20));
  }
}

TEST(Session, LabelDecidesTheStream) {
  const ModelConfig config = session_configs()[1];
  ASSERT_EQ(config.classes, 3);
  const auto model = random_model(config, seed);
  Session session(model, 3);
  std::vector<std::vector<std::int32_t>> drawn;
  for (std::int64_t label = 0; label < 3; ++label) {
    session.begin(label, label, seeded(1));
    drawn.push_back(draw(session, label, 50));
  }
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_NE(drawn[1], drawn[2]);
}

TEST(Session, MemoryOfALinearStreamIsConstantAndThatOfASoftmaxStreamGrows) {
  for (const Family family : {Family::linear, Family::softmax}) {
    ModelConfig config = tiny_config();
    config.positions = Positions::sinusoidal;
    config.attention.family = family;
    const auto model = random_model(config, seed);
    Session session(model, 1);
    session.begin(0, -1, seeded(1));
    std::vector<std::size_t> bytes;
    for (int i = 0; i < 4; ++i) {
      draw(session, 0, i == 0 ? 1 : 999);
      bytes.push_back(session.state_bytes(0));
    }
    session.prefill(0, random_tokens(2000, config.vocabulary, seed));
    bytes.push_back(session.state_bytes(0));
    EXPECT_EQ(session.position(0), 1 + 3 * 999 + 2000);
    if (family == Family::linear) {
      EXPECT_GT(bytes[0], 0u);
      for (const std::size_t b : bytes) EXPECT_EQ(b, bytes[0]);
    } else {
      // Keys and values of two layers, f32.
      EXPECT_EQ(bytes[2] - bytes[1], 999u * 2 * 2 * 6 * 4);
      EXPECT_EQ(bytes[4] - bytes[3], 2000u * 2 * 2 * 6 * 4);
    }
  }
}

TEST(Session, CapacityChangesNoToken) {
  const auto model = random_model(session_configs()[2], seed);
  Session small(model, 2), large(model, 2, {.capacity = 100, .cache = true});
  for (Session* session : {&small, &large}) session->begin(1, -1, seeded(1));
  EXPECT_EQ(draw(small, 1, 150), draw(large, 1, 150));
}

TEST(Session, AModelServesSessionsOfManyThreads) {
  for (const ModelConfig& config : session_configs()) {
    const auto model = random_model(config, seed);
    std::vector<std::vector<std::int32_t>> drawn(3);
    std::vector<std::thread> threads;
    for (std::vector<std::int32_t>& tokens : drawn)
      threads.emplace_back([&] {
        Session session(model, 2);
        session.begin(0, some_label(config), seeded(1));
        session.prefill(0, random_tokens(70, config.vocabulary, seed));
        tokens = draw(session, 0, 30);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(drawn[0], drawn[1]);
    EXPECT_EQ(drawn[0], drawn[2]);
  }
}

TEST(Session, RefusesNumbersOfThreadsThatCannotBe) {
  const auto model = random_model(session_configs()[0], seed);
  EXPECT_THROW(Session(model, 1, {.threads = -1}), UsageError);
  EXPECT_THROW(Session(model, 1, {.threads = Context::most_threads + 1}), UsageError);
}

}  // namespace
}  // namespace linnet
