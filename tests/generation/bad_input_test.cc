// What a session refuses, and that it stays as it was.
#include <gtest/gtest.h>

#include <limits>

#include "support/errors.h"
#include "support/sessions.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 111;
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

std::vector<SamplingOptions> bad_options() {
  std::vector<SamplingOptions> result;
  const double infinity = std::numeric_limits<double>::infinity(), none = std::nan("");
  for (const double temperature : {none, -0.1, infinity, -infinity}) {
    result.emplace_back().temperature = temperature;
  }
  for (const std::int64_t top_k :
       {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    result.emplace_back().top_k = top_k;
  }
  for (const double top_p : {0.0, -0.5, 1.0001, 2.0, none, infinity}) result.emplace_back().top_p = top_p;
  return result;
}

TEST(SamplingOptions, RefusesValuesThatCannotBe) {
  for (const SamplingOptions& options : bad_options()) error_of<UsageError>([&] { options.check(); });
  EXPECT_NO_THROW(SamplingOptions{}.check());
  EXPECT_NO_THROW(greedy().check());
}

/// A session in the middle of its work, and another to which nothing bad is done.
class RefusingSession : public testing::TestWithParam<bool> {
 protected:
  RefusingSession() {
    config_ = small_config();
    config_.length = 50;
    config_.classes = 2;
    model_ = random_model(config_, seed);
    for (auto* session : {&session_, &untouched_}) {
      *session = std::make_unique<Session>(model_, 3, Session::Options{.capacity = 0, .cache = GetParam()});
      (*session)->begin(1, 1, seeded(4));
      (*session)->prefill(1, random_tokens(20, config_.vocabulary, seed));
    }
  }

  /// The action fails and changes nothing that can be seen.
  void expect_refused(const std::function<void(Session&)>& action) {
    error_of([&] { action(*session_); });
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(session_->position(i), untouched_->position(i)) << "stream " << i;
      EXPECT_EQ(session_->state_bytes(i), untouched_->state_bytes(i)) << "stream " << i;
    }
  }

  void expect_still_working() { EXPECT_EQ(draw(*session_, 1, 20), draw(*untouched_, 1, 20)); }

  ModelConfig config_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Session> session_, untouched_;
};

TEST_P(RefusingSession, OptionsLabelsAndStreamsThatCannotBe) {
  for (const SamplingOptions& options : bad_options())
    expect_refused([&](Session& session) { session.begin(1, 0, options); });
  for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{2}, huge})
    expect_refused([&](Session& session) { session.begin(1, label, {}); });
  std::int32_t token = 0;
  const std::vector<std::int32_t> prompt = {1};
  for (const std::int64_t stream : {std::int64_t{-1}, std::int64_t{3}, huge}) {
    expect_refused([&](Session& session) { session.begin(stream, 0, {}); });
    expect_refused([&](Session& session) { session.prefill(stream, prompt); });
    expect_refused([&](Session& session) { session.step(std::span(&token, 1), std::span(&stream, 1)); });
    expect_refused([&](Session& session) { session.fork(1, stream, 0); });
    expect_refused([&](Session& session) { session.fork(stream, 1, 0); });
    expect_refused([&](Session& session) { session.position(stream); });
    expect_refused([&](Session& session) { session.state_bytes(stream); });
  }
  expect_still_working();
}

TEST_P(RefusingSession, TokensOutsideTheVocabulary) {
  for (const std::int32_t bad : {-1, 11, 12, std::numeric_limits<std::int32_t>::max()}) {
    const std::vector<std::int32_t> prompt = {3, 4, bad, 1};
    expect_refused([&](Session& session) { session.prefill(1, prompt); });
  }
  EXPECT_NO_THROW(session_->prefill(1, {}));
  expect_still_working();
}

TEST_P(RefusingSession, StepsThatNameAStreamTwiceOrDoNotFit) {
  std::vector<std::int32_t> tokens(3);
  expect_refused([&](Session& session) { session.step(tokens, std::vector<std::int64_t>{0, 1, 0}); });
  expect_refused([&](Session& session) { session.step(tokens, std::vector<std::int64_t>{0, 1}); });
  expect_refused([&](Session& session) { session.step(std::span(tokens).first(2)); });
  EXPECT_NO_THROW(session_->step(std::span<std::int32_t>(), std::span<const std::int64_t>()));
  expect_still_working();
}

TEST_P(RefusingSession, PositionsBeyondWhatTheModelHasLearned) {
  // 20 tokens are given; the model predicts 50, of which the inputs are the first token and 49 of them.
  const auto prompt = random_tokens(51, config_.vocabulary, seed);
  expect_refused([&](Session& session) { session.prefill(1, prompt); });
  expect_refused([&](Session& session) { session.prefill(1, std::span(prompt).first(31)); });
  for (auto* session : {session_.get(), untouched_.get()}) session->begin(0, 0, seeded(1));
  EXPECT_EQ(draw(*session_, 1, 30), draw(*untouched_, 1, 30));
  std::vector<std::int32_t> tokens(3);
  expect_refused([&](Session& session) { draw(session, 1, 1); });
  expect_refused([&](Session& session) { session.step(tokens); });  // stream 1 stops the others from moving
  EXPECT_EQ(draw(*session_, 0, 50), draw(*untouched_, 0, 50));
}

INSTANTIATE_TEST_SUITE_P(Cache, RefusingSession, testing::Bool(),
                         [](const auto& info) { return info.param ? "cached" : "recomputed"; });

TEST(SessionOfDamagedWeights, DrawsTokensOrFailsButDoesNotCrash) {
  for (const OutputDistribution head : {OutputDistribution::categorical, OutputDistribution::logistics})
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -3e38f}) {
      ModelConfig config = tiny_config();
      config.head = head;
      config.vocabulary = 90;
      const Network network(config);
      Tensor values = random_values(network.table(), seed);
      fill(network.table(), values.span<float>(), "layers.1.norm2.bias", bad);
      Session session(make_model(config, std::move(values)), 3);
      SamplingOptions narrow;
      narrow.top_k = 7;
      narrow.top_p = 0.5;
      session.begin(0, -1, greedy());
      session.begin(1, -1, narrow);
      std::vector<std::int32_t> tokens(3);
      bool failed = false;
      try {
        for (int step = 0; step < 3; ++step) {
          session.step(tokens);
          for (const std::int32_t token : tokens)
            EXPECT_TRUE(token >= 0 && token < 90) << token << " after " << bad;
        }
      } catch (const Error&) {
        failed = true;
      }
      EXPECT_TRUE(failed || std::isfinite(bad)) << bad;
    }
}

TEST(SessionConstruction, RefusesEncodersAndFamiliesWithoutARecurrentForm) {
  ModelConfig config = small_config();
  config.objective = Objective::masked;
  const auto encoder = Model::random(config);
  for (const Session::Options& options : {Session::Options{}, no_cache})
    EXPECT_NE(error_of<UsageError>([&] {
                Session(encoder, 1, options);
              }).find("fills in masked tokens and does not generate"),
              std::string::npos);
  config.objective = Objective::next_token;
  config.attention.family = Family::lsh;
  const auto decoder = Model::random(config);
  EXPECT_NE(error_of([&] { Session(decoder, 1); }).find("lsh attention"), std::string::npos);
  Session session(decoder, 1, no_cache);
  std::int32_t token = 0;
  EXPECT_NO_THROW(session.step(std::span(&token, 1)));
}

TEST(SessionConstruction, RefusesNumbersOfStreamsThatCannotBe) {
  EXPECT_THROW(Session(nullptr, 1), UsageError);
  const auto model = random_model(tiny_config(), seed);
  for (const std::int64_t streams : {std::int64_t{0}, std::int64_t{-1}, huge})
    error_of([&] { Session(model, streams); });
  error_of([&] { Session(model, 1, {.capacity = -1, .cache = true}); });
  error_of([&] { Session(model, 1).begin(0, 0, {}); });  // a label for a model without classes
}

TEST(SessionConstruction, RefusesMoreStreamsThanMemoryHolds) {
  ModelConfig config = tiny_config();
  config.attention.family = Family::softmax;
  config.positions = Positions::sinusoidal;
  const auto model = random_model(config, seed);
  // 8 bytes for each of 2^20 streams · 2^24 tokens · 2 layers · 6 numbers.
  const std::string what = error_of([&] { Session(model, 1 << 20, {.capacity = 1 << 24, .cache = true}); });
  EXPECT_NE(what.find("[memory] expected the states of 1048576 streams"), std::string::npos) << what;
}

}  // namespace
}  // namespace linnet
