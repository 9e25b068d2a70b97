// Sessions of encoder–decoder models.
#include <gtest/gtest.h>

#include <cmath>

#include "linnet/error.h"
#include "linnet/generation.h"
#include "support/contexts.h"
#include "support/feature_maps.h"
#include "support/models.h"
#include "support/numbers.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 37;

std::shared_ptr<const Model> model_of(Family family) {
  ModelConfig config = tiny_config();
  config.attention.family = family;
  config.positions = Positions::sinusoidal;
  config.encoder_layers = 2;
  config.source_length = 9;
  return random_model(config, seed);
}

std::vector<std::int32_t> draw(Session& session, std::int64_t stream, int count) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    std::int32_t token = 0;
    session.step(std::span(&token, 1), std::span(&stream, 1));
    tokens.push_back(token);
  }
  return tokens;
}

TEST(Sources, ProbabilitiesOfEveryStepAreTheScores) {
  for (const Family family : {Family::linear, Family::softmax}) {
    const auto model = model_of(family);
    const std::vector<std::int32_t> source = {3, 1, 4, 1, 0}, tokens = {2, 0, 4, 4, 1, 3};
    Session session(model, 2);
    session.begin(1, source, {});
    const std::int64_t stream[] = {1};
    const std::vector<float> scores = model->score(any_context(), source, tokens);
    std::vector<float> probabilities(5);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      session.probabilities(1, probabilities);
      EXPECT_NEAR(std::log(probabilities[static_cast<std::size_t>(tokens[i])]), scores[i], 1e-4) << i;
      session.observe(std::span(tokens).subspan(i, 1), stream);
    }
    session.begin(1, source, {});
    session.prefill(1, std::span(tokens).first(4));
    session.probabilities(1, probabilities);
    EXPECT_NEAR(std::log(probabilities[static_cast<std::size_t>(tokens[4])]), scores[4], 1e-4);
  }
}

TEST(Sources, StreamsDoNotDependOnTheStreamsBesideThemAndCarryTheirSources) {
  for (const Family family : {Family::linear, Family::softmax}) {
    const auto model = model_of(family);
    const std::vector<std::int32_t> first = {3, 1, 4, 1, 0, 2, 2}, second = {0};
    Session session(model, 3), alone(model, 1);
    session.begin(0, first, {.seed = 5});
    session.begin(1, second, {.seed = 6});
    alone.begin(0, first, {.seed = 5});
    std::vector<std::int32_t> tokens(2), expected;
    const std::int64_t both[] = {0, 1};
    for (int i = 0; i < 6; ++i) {
      session.step(tokens, both);
      EXPECT_EQ(tokens[0], draw(alone, 0, 1)[0]);
    }
    const std::vector<std::byte> bytes = session.save(0);
    EXPECT_EQ(bytes.size(), 88 + session.state_bytes(0));
    session.fork(2, 0, 5);
    alone.restore(0, bytes);
    expected = draw(session, 0, 8);
    EXPECT_EQ(draw(session, 2, 8), expected);
    EXPECT_EQ(draw(alone, 0, 8), expected);
    session.restore(1, bytes);
    session.resize(2);
    EXPECT_EQ(draw(session, 1, 8), expected);
  }
}

TEST(Sources, AreNeededAndChecked) {
  const auto model = model_of(Family::linear);
  Session session(model, 1);
  std::int32_t token = 0;
  std::vector<float> numbers(5);
  EXPECT_THROW(session.step(std::span(&token, 1)), Error);
  EXPECT_THROW(session.observe(std::span(&token, 1)), Error);
  EXPECT_THROW(session.prefill(0, std::span(&token, 1)), Error);
  EXPECT_THROW(session.probabilities(0, numbers), Error);
  EXPECT_THROW(session.save(0), Error);
  const std::vector<std::int32_t> outside = {5}, empty, good = {1};
  EXPECT_THROW(session.begin(0, outside, {}), UsageError);
  EXPECT_THROW(session.begin(0, empty, {}), UsageError);
  session.begin(0, good, {});
  session.step(std::span(&token, 1));
  EXPECT_THROW(session.begin(0, outside, {}), UsageError);
  EXPECT_EQ(session.position(0), 1);  // unchanged
  session.begin(0, -1, {});
  EXPECT_THROW(session.step(std::span(&token, 1)), Error);  // begun without a source
  EXPECT_THROW(Session(model, 1, {.cache = false}), UsageError);
  Session plain(random_model(tiny_config(), seed), 1);
  EXPECT_THROW(plain.begin(0, good, {}), UsageError);
}

TEST(Sources, AreReadByAFeatureMapOfTheCallers) {
  ModelConfig config = tiny_config();
  config.encoder_layers = 2;
  config.source_length = 9;
  ModelConfig plain = config;
  config.attention.linear.feature_map = "doubled-relu";
  plain.attention.linear.feature_map = "relu";
  Session session(Model::random(config, seed, std::make_shared<DoubledRelu>()), 1),
      twin(Model::random(plain, seed), 1);
  const std::vector<std::int32_t> source = {3, 1, 4, 1, 0};
  session.begin(0, source, {});
  twin.begin(0, source, {});
  // Features of twice the size give the same attention, up to epsilon.
  std::vector<float> found(static_cast<std::size_t>(config.vocabulary)), expected(found.size());
  session.probabilities(0, found);
  twin.probabilities(0, expected);
  EXPECT_LT(relative_error(found, expected), 1e-3);
}

}  // namespace
}  // namespace linnet
