// Sessions of models whose steps have several fields.
#include <gtest/gtest.h>

#include <cmath>

#include "linnet/error.h"
#include "linnet/generation.h"
#include "model/transformer.h"
#include "support/contexts.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 29;

ModelConfig three_fields(Family family = Family::linear) {
  ModelConfig config = tiny_config();
  config.fields = "5,2,3";
  config.length = 700;
  config.classes = 2;
  config.attention.family = family;
  return config;
}

TEST(Fields, DrawsHaveTheProbabilitiesOfTheModel) {
  ModelConfig config = three_fields();
  config.fields = "3,2";
  config.vocabulary = 3;
  const auto model = random_model(config, seed);
  // −log p of every pair as the first step of a stream of class 1.
  std::vector<double> expected;
  Transformer transformer(network_of(*model));
  for (std::int32_t a = 0; a < 3; ++a)
    for (std::int32_t b = 0; b < 2; ++b) {
      const std::vector<std::int32_t> ids = {config.first_input(1), 2}, targets = {a, b};
      expected.push_back(std::exp(
          -transformer.loss(any_context(), {.batch = 1, .length = 1, .ids = ids, .targets = targets})));
    }
  double sum = 0;
  for (const double p : expected) sum += p;
  EXPECT_NEAR(sum, 1, 1e-5);
  Session session(model, 1, {.threads = 1});
  constexpr int count = 20000;
  std::vector<int> found(expected.size());
  std::int32_t step[2];
  for (int i = 0; i < count; ++i) {
    session.begin(0, 1, {.seed = static_cast<std::uint64_t>(i)});
    session.step(step);
    ++found[static_cast<std::size_t>(2 * step[0] + step[1])];
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double deviation = std::sqrt(expected[i] * (1 - expected[i]) / count);
    EXPECT_NEAR(found[i] / double{count}, expected[i], 5 * deviation) << "pair " << i << ", seed " << seed;
  }
}

TEST(Fields, ObservedPrefilledForkedAndRestoredStreamsGoOnAlike) {
  for (const Family family : {Family::linear, Family::softmax}) {
    const auto model = random_model(three_fields(family), seed);
    SCOPED_TRACE(testing::Message() << name_of(family) << ", seed " << seed);
    constexpr std::size_t steps = 600;  // more than a slice of a prefill
    std::vector<std::int32_t> drawn(3 * steps);
    Session session(model, 5, {.threads = 2});
    const std::int64_t zero[] = {0}, one[] = {1};
    session.begin(0, 1, {.temperature = 0.8, .seed = 3});
    for (std::size_t i = 0; i < steps; ++i) {
      session.step(std::span(drawn).subspan(3 * i, 3), zero);
      for (std::size_t f = 0; f < 3; ++f)
        ASSERT_LT(drawn[3 * i + f], model->config().field_sizes()[f]) << "step " << i;
    }
    const auto continued = [&](Session& of, std::int64_t stream) {
      std::vector<std::int32_t> tokens(3 * 20);
      for (std::size_t i = 0; i < 20; ++i)
        of.step(std::span(tokens).subspan(3 * i, 3), std::span(&stream, 1));
      return tokens;
    };
    const SamplingOptions sampling{.temperature = 0.8, .seed = 3};
    for (const std::int64_t stream : {1, 2, 3}) session.begin(stream, 1, sampling);
    for (std::size_t i = 0; i < steps; ++i) session.observe(std::span(drawn).subspan(3 * i, 3), one);
    session.prefill(2, drawn);
    session.prefill(3, std::span(drawn).first(3 * 100));
    session.prefill(3, std::span(drawn).subspan(3 * 100));
    EXPECT_EQ(session.position(2), std::int64_t{steps});
    session.fork(4, 0, 3);
    Session other(model, 1, {.threads = 1});
    other.restore(0, session.save(0));
    const std::vector<std::int32_t> expected = continued(session, 0);
    for (const std::int64_t stream : {1, 2, 3, 4}) EXPECT_EQ(continued(session, stream), expected) << stream;
    EXPECT_EQ(continued(other, 0), expected);
  }
}

TEST(Fields, StreamsBesideAndThreadsChangeNothing) {
  const auto model = random_model(three_fields(), seed);
  std::vector<std::vector<std::int32_t>> results;
  for (const int threads : {1, 2}) {
    Session session(model, 37, {.threads = threads});
    std::vector<std::int32_t> tokens(3 * 37);
    for (int i = 0; i < 10; ++i) session.step(tokens);
    results.push_back(tokens);
  }
  EXPECT_EQ(results[0], results[1]);
  Session alone(model, 1, {.threads = 1});
  alone.begin(0, 0, {.seed = 11});
  std::int32_t step[3];
  for (int i = 0; i < 10; ++i) alone.step(step);
  EXPECT_TRUE(std::equal(step, step + 3, results[0].begin() + 33));
}

TEST(Fields, RefusesWhatDoesNotFit) {
  const auto model = random_model(three_fields(), seed);
  EXPECT_THROW(Session(model, 1, {.cache = false}), UsageError);
  ModelConfig labels = tiny_config(), filter = tiny_config();
  labels.objective = Objective::classify;
  labels.classes = 3;
  filter.objective = Objective::same_step;
  filter.targets = 2;
  for (const ModelConfig& config : {labels, filter})
    EXPECT_THROW(Session(random_model(config, seed), 1), UsageError) << name_of(config.objective);
  Session session(model, 2, {.threads = 1});
  std::vector<std::int32_t> two(2), six = {4, 1, 2, 0, 2, 0};
  EXPECT_THROW(session.step(two), Error);
  EXPECT_THROW(session.observe(six), Error);  // field 1 has two values
  EXPECT_THROW(session.prefill(0, two), Error);
  EXPECT_EQ(session.position(0), 0);
  std::vector<float> five(5), three(3);
  session.logits(0, five);
  EXPECT_THROW(session.logits(0, three), UsageError);
}

}  // namespace
}  // namespace linnet
