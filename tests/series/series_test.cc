#include "linnet/series.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "io/temporary_folder.h"
#include "linnet/error.h"
#include "linnet/generation.h"
#include "series/models.h"

namespace linnet {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t seed = 17;
constexpr float none = std::numeric_limits<float>::quiet_NaN();

std::shared_ptr<const Model> model_of(const ModelConfig& config, const std::string& columns = "") {
  return make_model(config, values_with_deviations(Network(config), seed), nullptr, {.columns = columns});
}

/// One column that is normalised already, which serves two columns of the data.
std::shared_ptr<const Model> apart() {
  ModelConfig config = together();
  config.columns = 1;
  return model_of(config, R"({"names": ["wave", "level"], "mean": [10, -200], "deviation": [2, 50]})");
}

std::vector<float> rows(std::int64_t count, std::int64_t columns = 2) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count * columns; ++i)
    values.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(i))));
  return values;
}

View<const float> view(const std::vector<float>& values, std::int64_t columns = 2) {
  return {values.data(), {std::ssize(values) / columns, columns}};
}

TEST(Series, AForecastIsWhatASessionDraws) {
  const auto model = model_of(together());
  const std::vector<float> values = rows(60);
  const std::vector<float> drawn =
      forecast(ModelSeries(model, view(values)), {.steps = 4, .samples = 3, .seed = 9, .threads = 1});
  ASSERT_EQ(drawn.size(), 3u * 4 * 2);
  NumberSession session(model, 1, {.threads = 1});
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    session.begin(0);
    std::vector<float> predicted(2), row(2);
    // As many rows as a training example has, less the one that the start token takes.
    for (std::int64_t i = 60 - 39; i < 60; ++i)
      session.step(std::span(values).subspan(static_cast<std::size_t>(2 * i), 2), predicted);
    for (std::int64_t step = 0; step < 4; ++step) {
      session.draw(0, 9 + static_cast<std::uint64_t>(sample), row);
      for (std::int64_t c = 0; c < 2; ++c)
        EXPECT_NEAR(drawn[static_cast<std::size_t>((sample * 4 + step) * 2 + c)], row[c],
                    1e-4 * (1 + std::abs(row[c])))
            << sample << ' ' << step << ' ' << c;
      session.step(row, predicted);
    }
  }
}

TEST(Series, ASampleDependsOnItsNumberAlone) {
  for (const auto& model : {model_of(together()), model_of(together(2)), apart()}) {
    const std::vector<float> values = rows(50);
    const ModelSeries series(model, view(values));
    const auto many = forecast(series, {.steps = 5, .samples = 6}),
               few = forecast(series, {.steps = 5, .samples = 2});
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
    const auto alone = forecast(series, {.steps = 5, .samples = 1, .seed = 4});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), many.begin() + 4 * 5 * 2));
    EXPECT_NE(forecast(series, {.steps = 5, .samples = 2, .seed = 1}), few);
  }
}

// Of columns apart, forecasts and scores are those of the normalised numbers in the units of the data.
TEST(Series, ColumnsApartAreInTheUnitsOfTheData) {
  const std::vector<float> normal = rows(50);
  std::vector<float> values = normal;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = i % 2 == 0 ? 10 + 2 * values[i] : -200 + 50 * values[i];
  const auto model = apart();
  const ModelSeries series(model, view(values));
  EXPECT_THAT(series.column_names(), ElementsAre("wave", "level"));
  EXPECT_EQ(series.rows(), 50);
  const auto drawn = forecast(series, {.steps = 2, .samples = 1, .temperature = 0});
  NumberSession session(model, 2, {.threads = 1});
  std::vector<float> predicted(2);
  for (std::int64_t i = 50 - 39; i < 50; ++i)
    session.step(std::span(normal).subspan(static_cast<std::size_t>(2 * i), 2), predicted);
  EXPECT_NEAR(drawn[0], 10 + 2 * predicted[0], 1e-3);
  EXPECT_NEAR(drawn[1], -200 + 50 * predicted[1], 1e-2);

  const SeriesScores scores = score(series);
  session.begin(0);
  session.begin(1);
  for (std::size_t i = 0; i < 50; ++i) {
    double sum = 0;
    for (std::int64_t c = 0; c < 2; ++c) {
      float mean = 0, scale = 0, freedom = 0;
      session.densities(c, {&mean, 1}, {&scale, 1}, {&freedom, 1});
      const std::size_t at = 2 * i + static_cast<std::size_t>(c);
      const double expected = std::log(c == 0 ? 2.0 : 50.0) - log_density(normal[at], mean, scale, freedom);
      EXPECT_NEAR(scores.numbers[at], expected, 1e-3) << i << ' ' << c;
      sum += scores.numbers[at];
    }
    EXPECT_NEAR(scores.rows[i], sum, 1e-9);
    session.step(std::span(normal).subspan(2 * i, 2), predicted);
  }
  EXPECT_FALSE(scores.has_context[0]);
  EXPECT_TRUE(scores.has_context[1]);
}

TEST(Series, ColumnsApartDrawApart) {
  std::vector<float> values;
  for (int i = 0; i < 50; ++i) values.insert(values.end(), {10 + 0.2f * i, -200 + 5.0f * i});  // alike
  const auto drawn = forecast(ModelSeries(apart(), view(values)), {.steps = 1, .samples = 1});
  EXPECT_GT(std::abs((drawn[0] - 10) / 2 - (drawn[1] + 200) / 50), 1e-3);
}

TEST(Series, NumbersOfAModelWithoutStatisticsAreTakenAsTheyAre) {
  ModelConfig config = together();
  config.columns = 1;
  const Network network(config);
  Tensor values = values_with_deviations(network, seed);
  const std::vector<double> zero = {0}, one = {1};
  network.columns()->set(values.span<float>(), zero, one, zero, one);
  const auto model = make_model(config, std::move(values));
  const std::vector<float> numbers = rows(30, 1);
  const SeriesScores scores = score(ModelSeries(model, view(numbers, 1)));
  NumberSession session(model, 1);
  float mean = 0, scale = 0, freedom = 0;
  session.densities(0, {&mean, 1}, {&scale, 1}, {&freedom, 1});
  EXPECT_NEAR(scores.rows[0], -log_density(numbers[0], mean, scale, freedom), 1e-5);
  // A file may be one of numbers that are to be normalised.
  EXPECT_THAT(error_of<UsageError>([&] { ModelSeries::parse(model, "a\n1\n2\n", "a.csv"); }),
              HasSubstr("columns.json"));
}

// The rows of a step are predicted together; those that fill no step are scored, too.
TEST(Series, StepsOfSeveralRows) {
  const std::vector<float> values = rows(21);
  const ModelSeries series(model_of(together(2)), view(values));
  const SeriesScores scores = score(series);
  ASSERT_EQ(scores.rows.size(), 21u);
  EXPECT_FALSE(scores.has_context[1]);
  EXPECT_TRUE(scores.has_context[2]);
  EXPECT_EQ(forecast(series, {.steps = 7, .samples = 2}).size(), 2u * 7 * 2);
}

TEST(Series, NumbersThatAreNotKnownHaveNoScore) {
  std::vector<float> values = rows(30);
  values[2 * 10] = none;
  const SeriesScores scores = score(ModelSeries(model_of(together()), view(values)));
  EXPECT_TRUE(std::isnan(scores.numbers[2 * 10]));
  EXPECT_EQ(scores.rows[10], scores.numbers[2 * 10 + 1]);
  EXPECT_EQ(std::ranges::count_if(scores.numbers, [](double x) { return std::isnan(x); }), 1);

  values[2 * 10 + 1] = none;
  EXPECT_TRUE(std::isnan(score(ModelSeries(model_of(together()), view(values))).rows[10]));
}

TEST(Series, ScoresThatAreNotFiniteAreErrors) {
  const ModelConfig config = together();
  const Network network(config);
  Tensor values = random_values(network.table(), seed);
  for (const auto& row : network.table().rows())
    if (row.name.ends_with("deviation"))
      for (std::int64_t i = 0; i < row.count; ++i)
        row.place.of(values.span<float>()).data()[i] = std::numeric_limits<float>::max();
  const std::vector<float> numbers = rows(10);
  const ModelSeries series(make_model(config, std::move(values)), view(numbers));
  EXPECT_THAT(error_of([&] { score(series); }), HasSubstr("score"));
}

TEST(Series, LearnedPositionsBeginAnewInScores) {
  ModelConfig config = together();
  config.positions = Positions::learned;
  config.length = 8;
  const std::vector<float> values = rows(20);
  const SeriesScores scores = score(ModelSeries(model_of(config), view(values)));
  EXPECT_EQ(std::ranges::count(scores.has_context, false), 3);
  EXPECT_FALSE(scores.has_context[7]);
}

TEST(Series, ModelsOfSquaredErrorsPredictMeansOnce) {
  ModelConfig config = together();
  config.value_head = ValueDistribution::squared_error;
  const std::vector<float> values = rows(30);
  EXPECT_EQ(forecast(ModelSeries(model_of(config), view(values)), {.steps = 3, .samples = 100}).size(),
            3u * 2);
}

TEST(Series, FilesAreReadByTheColumnsOfTheModel) {
  const TemporaryFolder folder;
  const auto model = apart();
  std::string text = "date,other,level,wave\n";
  for (int i = 0; i < 40; ++i)
    text += fmt::format("2024-01-01 00:{:02}:00,x,{},{}\n", i, -200 + i, 10 - 0.1 * i);
  const std::string path = folder.file("a.csv", text);
  const ModelSeries series = ModelSeries::read(model, path);
  EXPECT_THAT(series.column_names(), ElementsAre("wave", "level"));
  EXPECT_EQ(series.values()[2], 9.9f);
  EXPECT_EQ(series.values()[3], -199.0f);
  EXPECT_EQ(series.time(0), "2024-01-01 00:00:00");
  EXPECT_EQ(series.time(41), "2024-01-01 00:41:00");
  EXPECT_THAT(error_of<UsageError>([&] { series.time(-1); }), HasSubstr("at least 0"));
  const std::string gap = folder.file("gap.csv", "wave,level\n1,2\n,3\n4,5\n");
  EXPECT_THAT(error_of<Error>([&] { ModelSeries::read(model, gap); }), HasSubstr("a number"));
  EXPECT_EQ(ModelSeries::read(model, gap, "forward-fill").values()[2], 1.0f);
}

TEST(Series, ModelsAndNumbersThatDoNotFitAreRefused) {
  const auto model = model_of(together());
  const std::vector<float> values = rows(30);
  EXPECT_THAT(error_of<UsageError>([&] { ModelSeries(random_model(tiny_config(), seed), view(values)); }),
              HasSubstr("one of tokens"));
  EXPECT_THAT(error_of<UsageError>([&] { ModelSeries(nullptr, view(values)); }), HasSubstr("got none"));
  EXPECT_THAT(error_of<UsageError>([&] { ModelSeries::parse(nullptr, "a\n1\n", "a.csv"); }),
              HasSubstr("got none"));
  EXPECT_THAT(error_of<UsageError>([&] { ModelSeries::parse(model, "a,b\n1,2\n", "a.csv", "zero"); }),
              HasSubstr("data.missing"));
  EXPECT_THAT(error_of<UsageError>([&] { ModelSeries(model, view(values, 3)); }),
              HasSubstr("expected 2 columns"));
  EXPECT_THAT(error_of<UsageError>([&] {
                ModelSeries(model, View<const float>(values.data(), {0, 2}));
              }),
              HasSubstr("neither of them 0"));
  EXPECT_THAT(error_of<UsageError>([&] {
                ModelSeries(model, View<const float>(values.data(), {-3, -2}));
              }),
              HasSubstr("neither of them 0"));
  std::vector<float> infinite = values;
  infinite[5] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(error_of<UsageError>([&] { ModelSeries(model, view(infinite)); }),
              HasSubstr("infinity in row 2"));
  const ModelSeries series(model, view(values));
  EXPECT_THAT(error_of<UsageError>([&] { forecast(series, {.steps = 0}); }), HasSubstr("steps in 1"));
  EXPECT_THAT(error_of<UsageError>([&] { forecast(series, {.samples = 1 << 17}); }),
              HasSubstr("samples in 1"));
  EXPECT_THAT(error_of<UsageError>([&] { forecast(series, {.context = -1}); }), HasSubstr("context"));
  ModelConfig means = together();
  means.value_head = ValueDistribution::squared_error;
  for (const ModelSeries& any : {series, ModelSeries(model_of(means), view(values))})
    EXPECT_THAT(error_of<UsageError>([&] { forecast(any, {.temperature = -1}); }), HasSubstr("temperature"));
}

TEST(Series, WhatProgressThrowsEndsTheWork) {
  const std::vector<float> values = rows(3000);
  const ModelSeries series(model_of(together()), view(values));
  const SeriesProgress stop = [](std::int64_t, std::int64_t) { throw std::runtime_error("stop"); };
  EXPECT_THROW(score(series, 1, stop), std::runtime_error);
  EXPECT_THROW(forecast(series, {.samples = 1, .progress = stop}), std::runtime_error);
}

/// Scores of one column or two, each with a context but the first.
SeriesScores scores_of(std::vector<double> numbers, std::int64_t columns = 1) {
  SeriesScores scores{.columns = columns, .numbers = std::move(numbers), .rows = {}, .has_context = {}};
  for (std::size_t i = 0; i < scores.numbers.size(); i += static_cast<std::size_t>(columns)) {
    scores.rows.push_back(std::accumulate(scores.numbers.begin() + static_cast<std::ptrdiff_t>(i),
                                          scores.numbers.begin() + static_cast<std::ptrdiff_t>(i) + columns,
                                          0.0));
    scores.has_context.push_back(i > 0);
  }
  return scores;
}

TEST(Anomalies, AreRowsAboveTheThresholdWithNoMoreThanAGapBetween) {
  const SeriesScores scores = scores_of({99, 0, 5, 0, 7, 0, 0, 0, 6, 0});
  const auto found = [&](std::int64_t gap) {
    return find_anomalies(scores, {.threshold = 4, .gap = gap}).found;
  };
  ASSERT_EQ(found(0).size(), 3u);
  ASSERT_EQ(found(1).size(), 2u);
  EXPECT_EQ(found(1)[0].first, 2);
  EXPECT_EQ(found(1)[0].last, 4);
  EXPECT_EQ(found(1)[0].highest, 7);
  EXPECT_EQ(found(3).size(), 1u);
}

TEST(Anomalies, MeansOverAWindowLeaveOutRowsWithoutAContext) {
  const Anomalies found = find_anomalies(scores_of({99, 1, 3, 5, 1}), {.window = 2, .threshold = 3.5});
  EXPECT_THAT(found.scores, ElementsAre(99, 1, 2, 4, 3));
  ASSERT_EQ(found.found.size(), 1u);
  EXPECT_EQ(found.found[0].first, 3);
}

// A gap among low scores is no anomaly, and not part of what is usual.
TEST(Anomalies, RowsThatAreNotKnownTakeNoPart) {
  std::vector<double> numbers(2000, -10);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += 0.1 * std::sin(static_cast<double>(i));
  const Anomalies whole = find_anomalies(scores_of(numbers), {.quantile = 0.5});
  for (std::size_t i = 900; i < 920; ++i) numbers[i] = none;
  numbers[1500] = 3;
  const SeriesScores scores = scores_of(numbers);
  const Anomalies gap = find_anomalies(scores, {.quantile = 0.9999}),
                  smooth = find_anomalies(scores, {.window = 4, .quantile = 0.9999});
  EXPECT_NEAR(find_anomalies(scores, {.quantile = 0.5}).threshold, whole.threshold, 0.01);
  ASSERT_EQ(gap.found.size(), 1u);
  EXPECT_EQ(gap.found[0].first, 1500);
  EXPECT_TRUE(std::isnan(gap.scores[905]));
  EXPECT_TRUE(std::isnan(smooth.scores[905]));
  EXPECT_NEAR(smooth.scores[901], -10, 0.1);  // of the two rows before the gap
  EXPECT_FALSE(std::isnan(smooth.scores[920]));
  ASSERT_EQ(smooth.found.size(), 1u);
  EXPECT_EQ(smooth.found[0].first, 1500);
  const SeriesScores nothing = scores_of(std::vector<double>(50, none));
  EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(nothing); }), HasSubstr("known numbers"));
}

TEST(Anomalies, TheThresholdIsAQuantileOfTheCalibratingRows) {
  std::vector<double> numbers(101);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  EXPECT_DOUBLE_EQ(find_anomalies(scores_of(numbers), {.quantile = 0.5}).threshold, 50.5);
  EXPECT_DOUBLE_EQ(find_anomalies(scores_of(numbers), {.quantile = 0.5, .calibrate = 11}).threshold, 5.5);
  EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(scores_of(numbers), {.calibrate = 1}); }),
              HasSubstr("calibrating rows"));
}

// Exponential scores of unit mean: the quantile 1 − p lies at −ln p, also far beyond what their number tells.
TEST(Anomalies, TheTailGoesOnExponentially) {
  std::vector<double> numbers;
  constexpr int count = 20000;
  for (int i = 0; i < count; ++i) numbers.push_back(-std::log((i + 0.5) / count));
  EXPECT_NEAR(find_anomalies(scores_of(numbers), {.quantile = 1 - 1e-8}).threshold, -std::log(1e-8), 0.5);
}

TEST(Anomalies, NameTheColumnThatIsFurthestAboveItsMean) {
  // The second column has high scores everywhere.
  std::vector<double> numbers;
  for (int i = 0; i < 20; ++i) numbers.insert(numbers.end(), {i == 12 ? 9.0 : 0.0, 30.0});
  const Anomalies found = find_anomalies(scores_of(numbers, 2), {.threshold = 35});
  ASSERT_EQ(found.found.size(), 1u);
  EXPECT_EQ(found.found[0].column, 0);
  EXPECT_THAT(find_anomalies(scores_of(numbers, 2), {.threshold = 50}).found, IsEmpty());
}

TEST(Anomalies, OptionsOutsideTheirRangeAreRefused) {
  SeriesScores scores = scores_of({0, 1, 2, 3});
  EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(scores, {.window = 0}); }), HasSubstr("window"));
  EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(scores, {.quantile = 1.5}); }),
              HasSubstr("quantile"));
  EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(scores, {.gap = -1}); }), HasSubstr("gap"));
  EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(scores, {.calibrate = -1}); }),
              HasSubstr("calibrating"));
  scores.has_context.pop_back();
  EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(scores, {.threshold = 1}); }), HasSubstr("4 rows"));
  EXPECT_THAT(error_of<UsageError>([&] { find_anomalies({}, {.threshold = 1}); }), HasSubstr("0 columns"));
}

}  // namespace
}  // namespace linnet
