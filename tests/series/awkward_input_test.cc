// What callers of linnet/series.h may hand over by mistake: it is refused with a sentence, or computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "linnet/error.h"
#include "linnet/series.h"
#include "series/models.h"
#include "support/errors.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

std::shared_ptr<const Model> any_model() { return Model::random(together(), 3); }

ModelSeries series_of(std::vector<float> numbers) {
  return ModelSeries(any_model(), View<const float>(numbers.data(), {std::ssize(numbers) / 2, 2}));
}

SeriesScores scores_of(std::vector<double> numbers, std::int64_t columns = 1) {
  SeriesScores scores;
  scores.columns = columns;
  scores.rows = scores.numbers = std::move(numbers);
  scores.has_context.assign(scores.rows.size(), true);
  return scores;
}

TEST(AwkwardSeries, ViewsThatHoldNoNumbersAreRefused) {
  const float numbers[8] = {};
  const auto refused = [](View<const float> view) {
    return error_of<UsageError>([&] { ModelSeries(any_model(), view); });
  };
  EXPECT_THAT(refused({}), HasSubstr("got []"));
  EXPECT_THAT(refused({numbers, {8}}), HasSubstr("got [8]"));
  EXPECT_THAT(refused({numbers, {2, 2, 2}}), HasSubstr("got [2, 2, 2]"));
  EXPECT_THAT(refused({numbers, {0, 2}}), HasSubstr("got [0, 2]"));
  EXPECT_THAT(refused({numbers, {-4, 2}}), HasSubstr("got [-4, 2]"));
  EXPECT_THAT(refused({numbers, {2, 4}}), HasSubstr("4"));
  EXPECT_THAT(refused({nullptr, {4, 2}}), HasSubstr("got a null pointer"));
}

TEST(AwkwardSeries, RowsMayLieBackwards) {
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  const ModelSeries series(any_model(), View<const float>(numbers + 4, {3, 2}, {-2, 1}));
  EXPECT_THAT(series.values(), testing::ElementsAre(5, 6, 3, 4, 1, 2));
}

TEST(AwkwardSeries, OfNothingKnownIsForecastAndHasNoScore) {
  const ModelSeries series = series_of(std::vector<float>(40, nan));
  for (const float number : forecast(series, {.steps = 3, .samples = 2})) EXPECT_TRUE(std::isfinite(number));
  const SeriesScores scores = score(series);
  for (const double row : scores.rows) EXPECT_TRUE(std::isnan(row));
  EXPECT_THROW(find_anomalies(scores), UsageError);
}

TEST(AwkwardSeries, ForecastsOfImpossibleSizesAreRefused) {
  const ModelSeries series = series_of(std::vector<float>(40, 1));
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 40, most}) {
    EXPECT_THAT(error_of<UsageError>([&] { forecast(series, {.steps = count}); }), HasSubstr("steps"));
    EXPECT_THAT(error_of<UsageError>([&] { forecast(series, {.samples = count}); }), HasSubstr("samples"));
  }
  EXPECT_THAT(error_of<UsageError>([&] { forecast(series, {.context = -1}); }), HasSubstr("context"));
  EXPECT_EQ(forecast(series, {.steps = 1, .samples = 1, .context = most}).size(), 2u);
  EXPECT_THROW(forecast(series, {.threads = -1}), UsageError);
  EXPECT_THROW(series.time(-1), UsageError);
  EXPECT_EQ(series.time(most), "");
}

TEST(AwkwardSeries, TemperaturesThatFloatsDoNotHoldAreRefusedByTheForecast) {
  const ModelSeries series = series_of(std::vector<float>(40, 1));
  for (const double temperature : {-1.0, infinity, double{nan}, 1e300})
    EXPECT_THAT(error_of<UsageError>(
                    [&] { forecast(series, {.steps = 1, .samples = 1, .temperature = temperature}); }),
                AllOf(HasSubstr("[forecast]"), HasSubstr("temperature")));
}

TEST(AwkwardScores, SizesThatOverflowAreRefused) {
  for (const std::int64_t columns : {std::int64_t{1} << 62, std::int64_t{1} << 61, most, std::int64_t{-1}}) {
    SeriesScores scores = scores_of({1, 2, 3, 4}, columns);
    EXPECT_THROW(find_anomalies(scores, {.threshold = 1}), UsageError) << columns;
    scores.numbers.clear();  // 4 · 2^62 is 0 in 64 bits
    EXPECT_THROW(find_anomalies(scores, {.threshold = 1}), UsageError) << columns;
  }
}

TEST(AwkwardScores, OfNoRowsHaveNoAnomaly) {
  SeriesScores scores = scores_of({}, std::int64_t{1} << 62);
  EXPECT_TRUE(find_anomalies(scores, {.threshold = 1}).found.empty());
}

TEST(AwkwardScores, InfiniteOnesAreRefused) {
  for (const double number : {infinity, -infinity}) {
    std::vector<double> numbers(100, 1);
    numbers[50] = number;
    EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(scores_of(numbers)); }), HasSubstr("row 50"));
    EXPECT_THROW(find_anomalies(scores_of(numbers), {.threshold = 2}), UsageError);
    SeriesScores scores = scores_of(std::vector<double>(100, 1));
    scores.numbers[50] = number;
    EXPECT_THAT(error_of<UsageError>([&] { find_anomalies(scores); }), HasSubstr("number 50"));
  }
}

TEST(AwkwardScores, ThresholdsMayBeInfinite) {
  const SeriesScores scores = scores_of({1, 2, 3});
  EXPECT_TRUE(find_anomalies(scores, {.threshold = infinity}).found.empty());
  EXPECT_EQ(find_anomalies(scores, {.threshold = -infinity, .gap = 0}).found.size(), 1u);
  EXPECT_EQ(find_anomalies(scores, {.threshold = 2.5, .gap = most}).found.front().first, 2);
}

}  // namespace
}  // namespace linnet
