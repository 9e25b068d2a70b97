// Sessions in which a step fails between two layers, and not for want of memory.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "support/errors.h"
#include "support/feature_maps.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 191;

class FailedStep : public testing::Test {
 protected:
  FailedStep() {
    ModelConfig config = tiny_config();
    config.length = 100;
    config.attention.linear.feature_map = map_->name();
    model_ = Model::random(config, seed, map_);
  }

  /// Streams at the positions 0, 1, 2 …
  std::unique_ptr<Session> begun(const Session::Options& options) const {
    auto session = std::make_unique<Session>(model_, streams_, options);
    for (std::int64_t i = 0; i < streams_; ++i) {
      session->begin(i, -1, seeded(static_cast<std::uint64_t>(i)));
      draw(*session, i, i);
    }
    return session;
  }

  static constexpr std::int64_t streams_ = 12;
  std::shared_ptr<FailingMap> map_ = std::make_shared<FailingMap>(1);
  std::shared_ptr<const Model> model_;
};

TEST_F(FailedStep, WithoutACacheMovesNothing) {
  const auto session = begun(no_cache), twin = begun(no_cache);
  std::vector<std::int32_t> tokens(streams_), expected(streams_);
  map_->fails_at = 0;  // of all sequences
  EXPECT_THROW(session->step(tokens), std::runtime_error);
  map_->fails_at = -1;
  for (std::int64_t i = 0; i < streams_; ++i) EXPECT_EQ(session->position(i), i);
  session->step(tokens);
  twin->step(expected);
  EXPECT_EQ(tokens, expected);
}

TEST_F(FailedStep, OfAPromptLeavesTheStream) {
  const auto session = begun({.threads = 2}), twin = begun({.threads = 2});
  const auto prompt = random_tokens(70, model_->config().vocabulary, seed);
  map_->fails_at = 3;
  EXPECT_THROW(session->prefill(3, prompt), std::runtime_error);
  map_->fails_at = -1;
  EXPECT_EQ(session->position(3), 3);
  EXPECT_EQ(draw(*session, 3, 10), draw(*twin, 3, 10));
}

TEST_F(FailedStep, EndsAStreamWhosePredictionIsNotFiniteAndNoOther) {
  for (const int threads : {1, 2}) {
    const auto session = begun({.threads = threads}), twin = begun({.threads = threads});
    const auto before = session->save(5);
    std::vector<std::int32_t> tokens(streams_), expected(streams_);
    twin->step(expected);
    map_->overflows_at = 5;
    std::vector<float> row(static_cast<std::size_t>(model_->config().vocabulary));
    EXPECT_EQ(error_of<Error>([&] { session->logits(5, row); }),
              "[logits] expected a prediction of finite numbers, got another one in stream 5");
    EXPECT_EQ(error_of<Error>([&] { session->probabilities(5, row); }),
              "[probabilities] expected a prediction of finite numbers, got another one in stream 5");
    std::vector<float> log_probabilities(streams_);
    EXPECT_EQ(error_of<Error>([&] { session->step(tokens, {.log_probabilities = log_probabilities}); }),
              "[step] expected a prediction of finite numbers, got another one in stream 5");
    map_->overflows_at = -1;
    EXPECT_EQ(tokens[5], -1);
    EXPECT_TRUE(std::isnan(log_probabilities[5]));
    EXPECT_LE(log_probabilities[4], 0);
    EXPECT_NE(error_of([&] { draw(*session, 5, 1); }).find("in which a step failed halfway"),
              std::string::npos);
    session->restore(5, before);
    for (std::int64_t i = 0; i < streams_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (i == 5)
        EXPECT_EQ(draw(*session, i, 1)[0], expected[at]);
      else
        EXPECT_EQ(tokens[at], expected[at]);
      EXPECT_EQ(draw(*session, i, 10), draw(*twin, i, 10)) << "stream " << i << ", " << threads << " threads";
    }
  }
  const auto session = begun(no_cache), twin = begun(no_cache);
  std::vector<std::int32_t> tokens(streams_), expected(streams_);
  map_->overflows_at = 0;
  EXPECT_THROW(session->step(tokens), Error);
  map_->overflows_at = -1;
  session->step(tokens);
  twin->step(expected);
  EXPECT_EQ(tokens, expected);
}

// A thread takes at most 64 streams through the layers together.
TEST_F(FailedStep, LetsTheOthersMoveHoweverManyTheyAre) {
  constexpr std::int64_t many = 150, lost = 3;
  for (const int threads : {1, 2}) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    Session session(model_, many, {.threads = threads}), twin(model_, many, {.threads = threads});
    std::vector<std::int32_t> tokens(many, -7), expected(many);
    twin.step(expected);
    const auto spoil = [](std::int64_t stream, std::int64_t, std::span<float> logits) {
      if (stream == lost || stream == 100) logits[0] = std::numeric_limits<float>::quiet_NaN();
    };
    EXPECT_NE(error_of([&] { session.step(tokens, {.process_logits = spoil}); }).find("in stream 3"),
              std::string::npos);
    for (std::int64_t i = 0; i < many; ++i) {
      const bool moved = i != lost && i != 100;
      EXPECT_EQ(tokens[static_cast<std::size_t>(i)], moved ? expected[static_cast<std::size_t>(i)] : -1);
      EXPECT_EQ(session.position(i), moved ? 1 : 0);
    }
  }
}

TEST_F(FailedStep, EndsTheStreamsThatHaveMovedInSomeLayersOnly) {
  for (const int threads : {1, 2}) {
    const auto session = begun({.threads = threads}), twin = begun({.threads = threads});
    const auto before = session->save(5);
    std::vector<std::int32_t> tokens(streams_), expected(streams_);
    std::vector<float> row(static_cast<std::size_t>(model_->config().vocabulary));
    twin->step(expected);
    map_->fails_at = 5;
    EXPECT_THROW(session->step(tokens), std::runtime_error);
    map_->fails_at = -1;

    bool fifth_ended = false;
    for (std::int64_t i = 0; i < streams_; ++i) {
      SCOPED_TRACE(testing::Message() << "stream " << i << ", " << threads << " threads");
      const auto at = static_cast<std::size_t>(i);
      try {
        session->save(i);
      } catch (const Error&) {
        fifth_ended = fifth_ended || i == 5;
        const std::vector<std::int32_t> one = {1};
        for (const std::function<void()>& action : std::vector<std::function<void()>>{
                 [&] { draw(*session, i, 1); }, [&] { session->save(i); }, [&] { session->logits(i, row); },
                 [&] { session->observe(one, std::span(&i, 1)); }, [&] { session->prefill(i, one); },
                 [&] { session->fork((i + 1) % streams_, i, 7); }, [&] { session->step(tokens); }})
          EXPECT_NE(error_of(action).find("in which a step failed halfway"), std::string::npos);
        continue;
      }
      // Whole: it has moved as its twin, or not at all.
      const std::int64_t moved = session->position(i) - i;
      ASSERT_TRUE(moved == 0 || (moved == 1 && tokens[at] == expected[at])) << moved;
      if (moved == 0) {
        EXPECT_EQ(draw(*session, i, 1)[0], expected[at]);
      }
      EXPECT_EQ(draw(*session, i, 10), draw(*twin, i, 10));
    }
    EXPECT_TRUE(fifth_ended);

    // Each way out of it.
    session->restore(5, before);
    EXPECT_EQ(draw(*session, 5, 1)[0], expected[5]);
    EXPECT_EQ(draw(*session, 5, 10), draw(*twin, 5, 10));
    session->begin(6, -1, seeded(3));
    twin->begin(6, -1, seeded(3));
    EXPECT_EQ(draw(*session, 6, 20), draw(*twin, 6, 20));
    session->fork(4, 6, 8);
    twin->fork(4, 6, 8);
    EXPECT_EQ(draw(*session, 4, 20), draw(*twin, 4, 20));
  }
}

}  // namespace
}  // namespace linnet
