#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "linnet/error.h"
#include "linnet/generation.h"
#include "support/errors.h"
#include "support/feature_maps.h"
#include "support/models.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 17;
constexpr float none = std::numeric_limits<float>::quiet_NaN();

ModelConfig forecaster(Family family = Family::linear) {
  ModelConfig config = tiny_config();
  config.vocabulary = 0;
  config.columns = 2;
  config.length = 400;
  config.attention.family = family;
  config.value_head = ValueDistribution::student_t;
  config.relative = true;
  return config;
}

/// Two rows of two series in a step, inputs and targets relative.
ModelConfig patches() {
  ModelConfig config = forecaster();
  config.columns = 4;
  config.patch = 2;
  config.targets = 6;
  config.relative_inputs = true;
  return config;
}

ModelConfig filter() {
  ModelConfig config = forecaster();
  config.objective = Objective::same_step;
  config.targets = 3;
  config.relative = false;
  config.value_head = ValueDistribution::gaussian;
  return config;
}

std::shared_ptr<const Model> model_of(const ModelConfig& config) {
  return make_model(config, values_with_deviations(Network(config), seed));
}

/// The means and scales that the parallel form predicts from `numbers` [length, columns]: in a forecaster
/// those of step i + 1 in row i.
Densities parallel(const Model& model, const std::vector<float>& numbers) {
  const ModelConfig& config = model.config();
  std::vector<float> values = numbers;
  std::vector<std::int32_t> tokens;
  if (config.shifted()) {
    values.insert(values.begin(), static_cast<std::size_t>(config.columns), none);
    tokens.assign(values.size() / static_cast<std::size_t>(config.columns), -1);
    tokens.front() = config.first_input(-1);
  }
  Context context(1);
  return model.predict(
      context,
      {.batch = 1, .length = std::ssize(values) / config.columns, .tokens = tokens, .values = values});
}

TEST(NumberSession, GivesWhatTheParallelFormPredicts) {
  for (const ModelConfig& config : {forecaster(), forecaster(Family::softmax), patches(), filter()}) {
    SCOPED_TRACE(testing::Message() << describe(config) << ", seed " << seed);
    const auto model = model_of(config);
    const std::int64_t length = 130, targets = config.target_count(), first = config.shifted() ? 1 : 0;
    const std::int64_t columns = config.columns;
    std::vector<float> numbers = normals(length * columns, seed);
    numbers[6] = numbers[15] = none;
    const Densities expected = parallel(*model, numbers);
    NumberSession session(model, 3, {.threads = 1});
    std::vector<float> mean(static_cast<std::size_t>(targets)), scale(mean), freedom(mean), out(mean);
    const std::int64_t streams[] = {2};
    const auto expect_row = [&](std::int64_t row) {
      session.densities(2, mean, scale, freedom);
      for (std::int64_t t = 0; t < targets; ++t) {
        const auto at = static_cast<std::size_t>(t);
        ASSERT_NEAR(mean[at], expected.mean.view<float>()(0, row, t), 2e-4) << "step " << row;
        ASSERT_NEAR(scale[at], expected.scale.view<float>()(0, row, t), 2e-4);
        if (config.value_head != ValueDistribution::student_t) continue;
        ASSERT_NEAR(freedom[at] / expected.freedom.view<float>()(0, row, t), 1, 1e-3);
      }
    };
    if (config.shifted()) expect_row(0);
    for (std::int64_t i = 0; i < length; ++i) {
      session.step(std::span(numbers).subspan(static_cast<std::size_t>(columns * i),
                                              static_cast<std::size_t>(columns)),
                   out, streams);
      ASSERT_EQ(session.position(2), i + 1);
      expect_row(i + first);
      EXPECT_EQ(mean, out);
    }
    EXPECT_EQ(session.position(0), 0);
  }
}

TEST(NumberSession, StreamsDoNotDependOnEachOtherNorOnThreads) {
  const auto model = model_of(forecaster());
  const std::int64_t streams = 40, steps = 5;
  const std::vector<float> numbers = normals(streams * steps * 2, seed);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    NumberSession session(model, streams, {.threads = threads});
    std::vector<float> out(static_cast<std::size_t>(streams * 2));
    for (std::int64_t t = 0; t < steps; ++t)
      session.step(std::span(numbers).subspan(static_cast<std::size_t>(t * streams * 2), out.size()), out);
    results.push_back(out);
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_TRUE(same_bits(results[0], results[2]));
  NumberSession alone(model, 1, {.threads = 1});
  std::vector<float> out(2);
  for (std::int64_t t = 0; t < steps; ++t)
    alone.step(std::span(numbers).subspan(static_cast<std::size_t>((t * streams + 7) * 2), 2), out);
  EXPECT_TRUE(same_bits(out, std::vector<float>{results[0][14], results[0][15]}));
}

TEST(NumberSession, ObservesForksSavesAndRestores) {
  for (const ModelConfig& config : {forecaster(), patches()}) {
    SCOPED_TRACE(testing::Message() << config.patch << " rows in a step, seed " << seed);
    const auto model = model_of(config);
    const auto columns = static_cast<std::size_t>(config.columns);
    const std::vector<float> numbers = normals(config.columns * 20, seed);
    NumberSession session(model, 3, {.threads = 1});
    const auto row = [&](std::size_t i) { return std::span(numbers).subspan(columns * i, columns); };
    const std::int64_t zero[] = {0}, one[] = {1}, two[] = {2};
    std::vector<float> expected(static_cast<std::size_t>(config.target_count())), out(expected);
    for (std::size_t i = 0; i < 10; ++i) session.step(row(i), expected, zero);
    for (std::size_t i = 0; i < 9; ++i) session.observe(row(i), one);
    const std::vector<std::byte> saved = session.save(1);
    session.step(row(9), out, one);
    EXPECT_TRUE(same_bits(out, expected));
    session.fork(2, 1);
    session.step(row(10), expected, one);
    session.step(row(10), out, two);
    EXPECT_TRUE(same_bits(out, expected));
    NumberSession other(model, 1, {.threads = 1});
    other.restore(0, saved);
    EXPECT_EQ(other.position(0), 9);
    other.step(row(9), out);
    other.step(row(10), out);
    EXPECT_TRUE(same_bits(out, expected));
    // With the prediction of the numbers that come next.
    const auto density_of = [&](NumberSession& chosen, std::int64_t stream) {
      std::vector<float> numbers(3 * expected.size());
      const auto part = [&](std::size_t i) {
        return std::span(numbers).subspan(i * expected.size(), expected.size());
      };
      chosen.densities(stream, part(0), part(1), part(2));
      return numbers;
    };
    other.restore(0, session.save(1));
    EXPECT_TRUE(same_bits(density_of(other, 0), density_of(session, 1)));
    EXPECT_EQ(other.save(0), session.save(1));
    std::vector<std::byte> damaged = saved;
    damaged[100] ^= std::byte{1};
    EXPECT_THROW(other.restore(0, damaged), Error);
    EXPECT_EQ(other.position(0), 11);
    // A stream that begins anew knows nothing of the numbers before.
    std::vector<float> fresh(expected), begun(expected);
    NumberSession(model, 1, {.threads = 1}).step(row(3), fresh);
    session.begin(1);
    session.step(row(3), begun, one);
    EXPECT_TRUE(same_bits(begun, fresh));
  }
}

TEST(NumberSession, DrawsHaveTheDensitiesOfTheModel) {
  for (const ValueDistribution kind : {ValueDistribution::gaussian, ValueDistribution::student_t}) {
    ModelConfig config = forecaster();
    config.value_head = kind;
    SCOPED_TRACE(testing::Message() << name_of(kind) << ", seed " << seed);
    NumberSession session(model_of(config), 1, {.threads = 1});
    std::vector<float> mean(2), scale(2), freedom(2), out(2);
    session.densities(0, mean, scale, freedom);
    // Half of the draws lie within the quartiles: of a normal variable ± 0.67449, of Student's t further out.
    constexpr int count = 20000;
    int above = 0, near = 0;
    for (int i = 0; i < count; ++i) {
      session.draw(0, static_cast<std::uint64_t>(i), out);
      above += out[1] > mean[1];
      near += std::abs(out[1] - mean[1]) < 0.67449f * scale[1];
    }
    EXPECT_NEAR(above / double{count}, 0.5, 0.015);
    const double share = near / double{count};
    if (kind == ValueDistribution::student_t) {
      EXPECT_LT(share, 0.5 - 0.005);
      EXPECT_GT(share, 0.3);
    } else {
      EXPECT_NEAR(share, 0.5, 0.015);
    }
    session.draw(0, 5, out, 0);
    EXPECT_EQ(out, mean);
  }
}

TEST(NumberSession, NothingButMeansIsDrawnFromAModelOfSquaredErrors) {
  ModelConfig config = forecaster();
  config.value_head = ValueDistribution::squared_error;
  NumberSession session(model_of(config), 1, {.threads = 1});
  std::vector<float> mean(2), scale(2), freedom(2), out(2);
  session.densities(0, mean, scale, freedom);
  EXPECT_THROW(session.draw(0, 5, out), UsageError);
  session.draw(0, 5, out, 0);
  EXPECT_EQ(out, mean);
}

TEST(NumberSession, PredictsTheOnlyStepOfAModelWithOnePosition) {
  for (ModelConfig config : {forecaster(), filter()}) {
    config.length = 1;
    SCOPED_TRACE(testing::Message() << name_of(config.objective) << ", seed " << seed);
    const auto model = model_of(config);
    NumberSession session(model, 2, {.threads = 1});
    const auto targets = static_cast<std::size_t>(config.target_count());
    std::vector<float> mean(targets), scale(targets), freedom(targets), out(targets);
    const std::vector<float> numbers = normals(config.columns, seed);
    const std::int64_t one[] = {1};
    if (!config.shifted()) session.step(numbers, out, one);
    session.densities(1, mean, scale, freedom);
    const Densities expected = parallel(*model, config.shifted() ? std::vector<float>{} : numbers);
    EXPECT_LT(relative_error(mean, expected.mean.span<float>()), 1e-5);
    EXPECT_EQ(session.limit(), config.shifted() ? 0 : 1);
    EXPECT_EQ(session.can_continue(0), !config.shifted());
    EXPECT_FALSE(session.can_continue(1));
    EXPECT_THAT(error_of<Error>([&] { session.step(numbers, out, one); }),
                testing::AllOf(testing::HasSubstr(config.shifted() ? "[step] expected at most 0 steps"
                                                                   : "[step] expected at most 1 steps"),
                               testing::HasSubstr("in stream 1;")));
  }
}

TEST(NumberSession, AFailedStepLeavesThePredictionsOfStreamsThatHaveNotMoved) {
  const auto map = std::make_shared<FailingMap>(0);
  ModelConfig config = forecaster();
  config.attention.linear.feature_map = map->name();
  NumberSession session(Model::random(config, seed, map), 2, {.threads = 1});
  std::vector<float> out(4), mean(2), scale(2), freedom(2), again(2), drawn(2), drawn_again(2);
  for (int step = 0; step < 3; ++step) session.step(std::vector<float>{1, 2, 3, 4}, out);
  session.densities(1, mean, scale, freedom);
  session.draw(1, 5, drawn);
  map->fails_at = 4;  // the start token and three numbers
  EXPECT_THROW(session.step(std::vector<float>{10, 20, 30, 40}, out), std::runtime_error);
  map->fails_at = -1;
  EXPECT_EQ(session.position(1), 3);
  session.densities(1, again, scale, freedom);
  EXPECT_EQ(again, mean);
  session.draw(1, 5, drawn_again);
  EXPECT_EQ(drawn_again, drawn);
}

TEST(NumberSession, KeepsItsStreamsWhereItIsResized) {
  for (const Family family : {Family::linear, Family::softmax}) {
    ModelConfig config = forecaster();
    config.attention.family = family;
    SCOPED_TRACE(name_of(family));
    const auto model = Model::random(config, seed);
    NumberSession session(model, 3, {.threads = 1}), twin(model, 90, {.threads = 1});
    std::vector<float> in(180), out(180), expected(180);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::sin(static_cast<float>(i));
    const std::vector<std::int64_t> three = {0, 1, 2};
    const auto step = [&](std::span<const std::int64_t> streams) {
      const std::size_t count = 2 * streams.size();
      session.step(std::span(in).first(count), std::span(out).first(count), streams);
      twin.step(std::span(in).first(count), std::span(expected).first(count), streams);
      EXPECT_TRUE(same_bits(std::span(out).first(count), std::span(expected).first(count)));
    };
    step(three);
    session.resize(90);  // more than a block of streams
    EXPECT_EQ(session.streams(), 90);
    float mean[2], scale[2], freedom[2], of_twin[2];
    session.densities(1, mean, scale, freedom);  // the last prediction is kept
    twin.densities(1, of_twin, scale, freedom);
    EXPECT_TRUE(same_bits(std::span(mean), std::span(of_twin)));
    std::vector<std::int64_t> all(90);
    std::iota(all.begin(), all.end(), 0);
    step(all);
    EXPECT_EQ(session.position(2), 2);
    EXPECT_EQ(session.position(89), 1);
    session.resize(2);
    step(std::span(three).first(2));
    EXPECT_EQ(session.save(1), twin.save(1));
    EXPECT_THROW(session.position(2), UsageError);
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 21})
      EXPECT_THROW(session.resize(count), UsageError);
    step(std::span(three).first(2));
  }
}

TEST(NumberSession, EndsAStreamWhosePredictionIsNotFiniteAndNoOther) {
  const auto map = std::make_shared<FailingMap>(0);
  ModelConfig config = forecaster();
  config.attention.linear.feature_map = map->name();
  const auto model = Model::random(config, seed, map);
  constexpr std::int64_t count = 100;
  const std::vector<float> in(2 * count, 0.5f);
  const std::int64_t seventh[] = {7};
  const std::span<const float> one = std::span(in).first(2);
  for (const int threads : {1, 2}) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    NumberSession session(model, count, {.threads = threads}), twin(model, count, {.threads = threads});
    std::vector<float> out(in.size()), expected(in.size());
    for (NumberSession* both : {&session, &twin}) {
      both->observe(in);
      for (int i = 0; i < 3; ++i) both->observe(one, seventh);
    }
    const std::vector<std::byte> before = session.save(7);
    twin.step(in, expected);
    map->overflows_at = 5;  // of stream 7 alone: a start token and four numbers
    EXPECT_EQ(error_of<Error>([&] { session.step(in, out); }),
              "[step] expected a prediction of finite numbers, got another one in stream 7");
    map->overflows_at = -1;
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_TRUE(i / 2 == 7 ? std::isnan(out[i]) : out[i] == expected[i]) << i;
    for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(session.position(i), i == 7 ? 4 : 2);
    EXPECT_THAT(error_of([&] { session.save(7); }), testing::HasSubstr("in which a step failed halfway"));
    EXPECT_THROW(session.step(in, out), Error);
    session.restore(7, before);
    session.step(one, std::span(out).subspan(14, 2), seventh);
    EXPECT_TRUE(same_bits(out, expected));
    session.step(in, out);
    twin.step(in, expected);
    EXPECT_TRUE(same_bits(out, expected));
  }
}

TEST(NumberSession, RefusesWhatItCannotTake) {
  EXPECT_THROW(NumberSession(nullptr, 1), UsageError);
  EXPECT_THROW(NumberSession(model_of(tiny_config()), 1), UsageError);
  ModelConfig bidirectional = filter();
  bidirectional.bidirectional = true;
  EXPECT_THAT(error_of<UsageError>([&] { NumberSession(model_of(bidirectional), 1); }),
              testing::HasSubstr("model.bidirectional"));
  NumberSession filters(model_of(filter()), 1);
  for (const std::int64_t label : {0, 7, -2}) EXPECT_THROW(filters.begin(0, label), UsageError);
  EXPECT_THROW(NumberSession(model_of(filter()), 0), UsageError);
  EXPECT_THROW(Session(model_of(forecaster()), 1), UsageError);
  NumberSession session(model_of(forecaster()), 2, {.threads = 1});
  std::vector<float> two(2), four(4);
  EXPECT_THROW(session.step(two, four), UsageError);
  EXPECT_THROW(session.step(four, two), UsageError);
  std::vector<float> infinite = {1, 0, 0, std::numeric_limits<float>::infinity()};
  EXPECT_EQ(error_of<UsageError>([&] { session.step(infinite, four); }),
            "[step] expected finite numbers, got inf in stream 1");
  const std::int64_t twice[] = {1, 1}, outside[] = {0, 2};
  EXPECT_THROW(session.step(four, four, twice), UsageError);
  EXPECT_THROW(session.step(four, four, outside), UsageError);
  for (const double temperature : {-1.0, 1e39, std::nan("")})
    EXPECT_THROW(session.draw(0, 1, two, temperature), UsageError);
  EXPECT_EQ(session.position(0), 0);
  session.observe(four);
  EXPECT_THROW(session.densities(0, two, two, two), Error);
}

}  // namespace
}  // namespace linnet
