#include "data/series.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "io/temporary_folder.h"
#include "support/data_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsNan;
using testing::Pointwise;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Series parsed(std::string_view text, const DataOptions& options = {}) {
  return parse_series(text, "file.csv", options);
}

template <class E = Error>
std::string refusal(std::string_view text, const DataOptions& options = {}) {
  return error_of<E>([&] { parsed(text, options); });
}

struct Example {
  std::vector<float> values, targets;
};

Example example(const Dataset& dataset, std::int64_t index) {
  Example result{std::vector<float>(static_cast<std::size_t>(dataset.length() * dataset.columns())),
                 std::vector<float>(static_cast<std::size_t>(dataset.length() * dataset.target_columns()))};
  EXPECT_EQ(dataset.read(index, {}, {}), -1);
  dataset.read_values(index, result.values, result.targets);
  return result;
}

MATCHER(SameOrBothNan, "") {
  const auto& [left, right] = arg;
  return left == right || (std::isnan(left) && std::isnan(right));
}

auto are(const std::vector<float>& values) { return Pointwise(SameOrBothNan(), values); }

/// Row t has the numbers t and 100 + t.
std::string counting(int rows, int from = 0) {
  std::string text = "a,b\n";
  for (int t = from; t < from + rows; ++t) text += fmt::format("{},{}\n", t, 100 + t);
  return text;
}

TEST(Series, ReadsTheColumnsThatAreNamed) {
  const std::string text = "date,x,y,z\n2016-07-01,1,2,-3e2\n2016-07-02, 4.5 ,5,6\n";
  const Series all = parsed(text);
  EXPECT_THAT(all.columns, ElementsAre("x", "y", "z"));
  EXPECT_THAT(all.values, ElementsAre(1, 2, -300, 4.5, 5, 6));
  EXPECT_EQ(all.rows(), 2);
  EXPECT_TRUE(all.calendar);
  ASSERT_EQ(all.times.size(), 2u);
  EXPECT_EQ(all.times[1] - all.times[0], 86'400'000'000);
  const Series some = parsed(text, {.columns = "z, x"});
  EXPECT_THAT(some.columns, ElementsAre("z", "x"));
  EXPECT_THAT(some.values, ElementsAre(-300, 1, 6, 4.5));
}

TEST(Series, TimesAreTheFirstColumnIfItHasDatesOrTheOneThatIsNamed) {
  const Series without = parsed("n,x\n1,2\n2,3\n");
  EXPECT_THAT(without.times, IsEmpty());
  EXPECT_THAT(without.columns, ElementsAre("n", "x"));
  const Series integers = parsed("x,n\n5,1\n6,1\n7,9\n", {.time = "n"});
  EXPECT_THAT(integers.times, ElementsAre(1, 1, 9));
  EXPECT_FALSE(integers.calendar);
  EXPECT_THAT(integers.columns, ElementsAre("x"));
}

TEST(Series, TimesWithOffsetsAreThoseOfUtc) {
  // The clock is set back between the second and the third row.
  const Series series = parsed(
      "t,x\n2016-10-30 01:30:00+02:00,1\n2016-10-30 02:30:00+02:00,2\n"
      "2016-10-30 02:30:00+01:00,3\n");
  EXPECT_EQ(series.earlier_line, 0);
  EXPECT_EQ(series.time_text(0), "2016-10-29 23:30:00Z");
  EXPECT_EQ(series.time_text(4), "2016-10-30 03:30:00Z");
  EXPECT_THAT(refusal("t,x\n2016-10-30 01:30:00Z,1\n2016-10-30 02:30:00,2\n"),
              HasSubstr("expected dates with their offset from UTC"));
  EXPECT_THAT(refusal("t,x\n2016-10-30 01:30:00,1\n2016-10-30 02:30:00Z,2\n"),
              HasSubstr("expected dates without an offset"));
}

TEST(Series, MissingValuesAreRefusedOrFilled) {
  EXPECT_THAT(refusal("a,b\n1,2\n3,\n"),
              AllOf(HasSubstr("file.csv"), HasSubstr("\"b\" of line 3, got an empty cell"),
                    HasSubstr("forward-fill")));
  EXPECT_THAT(refusal("a,b\nNaN,2\n"), HasSubstr("\"a\" of line 2, got NaN"));
  const DataOptions fill{.missing = "forward-fill"};
  EXPECT_THAT(parsed("a,b\n1,2\n,nan\n , 5\n", fill).values, ElementsAre(1, 2, 1, 2, 1, 5));
  EXPECT_THAT(refusal("a,b\n1,\n3,4\n", fill),
              AllOf(HasSubstr("\"b\" of the first row"), HasSubstr("empty"), HasSubstr("remove the rows")));
  for (const char* word : {"NA", "n/a", "null", "None", " nan "}) {
    EXPECT_THAT(refusal(fmt::format("a,b\n1,{}\n", word)), HasSubstr("forward-fill")) << word;
    EXPECT_THAT(parsed(fmt::format("a,b\n1,2\n3,{}\n", word), fill).values, ElementsAre(1, 2, 3, 2)) << word;
  }
  EXPECT_THAT(parsed("Na\n1\n").columns, ElementsAre("Na"));  // sodium
}

TEST(Series, NumbersMayHaveASign) {
  const Series series = parsed("a,b\n+1.5,-2\n 3,+1e-3\n");
  EXPECT_THAT(series.values, testing::ElementsAre(1.5f, -2.0f, 3.0f, 1e-3f));
  EXPECT_THAT(error_of([] { parsed("a\n+-1\n"); }), HasSubstr("expected a number"));
}

TEST(Series, SemicolonsAndTabsPartCells) {
  const Series sensor = parsed("time;x, m;\"y;z\"\n2016-07-01;1,5;-2\n2016-07-02; 0,25 ;1e3\n");
  EXPECT_EQ(sensor.time, "time");
  EXPECT_THAT(sensor.columns, ElementsAre("x, m", "y;z"));
  EXPECT_THAT(sensor.values, ElementsAre(1.5f, -2, 0.25f, 1000));
  EXPECT_THAT(parsed("x;y\n1.5;2\n").values, ElementsAre(1.5f, 2));
  EXPECT_THAT(parsed("x\ty\r\n1,5\t2\r\n").values, ElementsAre(1.5f, 2));
  EXPECT_THAT(parsed("\xef\xbb\xbfx;y\n1,5;2").values, ElementsAre(1.5f, 2));
  const DataOptions fill{.missing = "forward-fill"};
  EXPECT_THAT(parsed("x;y\n1,5;2\n;NA\n", fill).values, ElementsAre(1.5f, 2, 1.5f, 2));
  // A semicolon that the rows have not is part of a name.
  EXPECT_THAT(parsed("flow; m3\n1\n").columns, ElementsAre("flow; m3"));
  EXPECT_THAT(parsed("flow; m3,b\n1,2\n").columns, ElementsAre("flow; m3", "b"));
}

TEST(Series, OfOtherNotationsAreRefused) {
  EXPECT_THAT(refusal("x;y\n1,5;2\n2;2.5\n"),
              AllOf(HasSubstr("with points or numbers with commas, got both"), HasSubstr("line 3: \"2.5\"")));
  EXPECT_THAT(refusal("x;y\n2.5;1\n1,234;2\n"), HasSubstr("got both"));
  EXPECT_THAT(refusal("x;y\n1.234,5;2\n"), HasSubstr("expected a number in column \"x\" of line 2"));
  EXPECT_THAT(refusal("x;y\n1,234,567;2\n"), HasSubstr("expected a number in column \"x\" of line 2"));
  EXPECT_THAT(refusal("x;y\n1;2;3\n"), HasSubstr("as many semicolons in the first row as in the header"));
  EXPECT_THAT(refusal("x;y\n1;2\n3\n"), HasSubstr("expected 2 cells in line 3"));
  EXPECT_THAT(refusal("x,y\n\"1,5\",2\n"), HasSubstr("expected a number in column \"x\""));
  EXPECT_THAT(refusal("x|y\n1|2\n"),
              HasSubstr("expected commas, semicolons or tabs between cells, got bars"));
}

TEST(Series, TimesGoOnAsTheLastThreeRowsDo) {
  const Series days = parsed("t,x\n2016-06-28,1\n2016-06-29,1\n2016-06-30,1\n");
  EXPECT_EQ(days.time, "t");
  EXPECT_EQ(days.time_text(0), "2016-06-28 00:00:00");
  EXPECT_EQ(days.time_text(3), "2016-07-01 00:00:00");
  EXPECT_EQ(days.time_text(33), "2016-07-31 00:00:00");
  const Series uneven = parsed("x,n\n5,1\n6,2\n7,9\n", {.time = "n"});
  EXPECT_EQ(uneven.time_text(2), "9");
  EXPECT_EQ(uneven.time_text(3), "");
  EXPECT_EQ(parsed("x\n5\n").time_text(0), "");
}

// Months and years have no equal distances; two months of 31 days in a row have.
TEST(Series, TimesGoOnByMonths) {
  const auto next = [](const std::vector<std::string>& times) {
    std::string text = "t,x\n";
    for (const std::string& time : times) text += time + ",1\n";
    const Series series = parsed(text);
    std::vector<std::string> found;
    for (std::int64_t row = series.rows(); row < series.rows() + 4; ++row)
      found.push_back(series.time_text(row).substr(0, 10));
    return found;
  };
  EXPECT_THAT(next({"2016-07-01", "2016-08-01", "2016-09-01"}),
              ElementsAre("2016-10-01", "2016-11-01", "2016-12-01", "2017-01-01"));
  EXPECT_THAT(next({"2015-12-15 06:00", "2016-01-15 06:00", "2016-02-15 06:00"}),
              ElementsAre("2016-03-15", "2016-04-15", "2016-05-15", "2016-06-15"));
  EXPECT_THAT(next({"2015-11-30", "2015-12-31", "2016-01-31"}),
              ElementsAre("2016-02-29", "2016-03-31", "2016-04-30", "2016-05-31"));
  EXPECT_THAT(next({"2015-11-30", "2015-12-30", "2016-01-30"}),
              ElementsAre("2016-02-29", "2016-03-30", "2016-04-30", "2016-05-30"));
  EXPECT_THAT(next({"2014-06-30", "2015-06-30", "2016-06-30"}),
              ElementsAre("2017-06-30", "2018-06-30", "2019-06-30", "2020-06-30"));
  EXPECT_THAT(next({"2015-10-01", "2016-01-01", "2016-04-01"}),
              ElementsAre("2016-07-01", "2016-10-01", "2017-01-01", "2017-04-01"));
  // Every 31 days.
  EXPECT_THAT(next({"2016-05-31", "2016-07-01", "2016-08-01", "2016-09-01"}),
              ElementsAre("2016-10-02", "2016-11-02", "2016-12-03", "2017-01-03"));
  EXPECT_THAT(next({"2016-07-01", "2016-08-01", "2016-09-01 00:00:01"}), ElementsAre("", "", "", ""));
  const Series years = parsed("t,x\n2014-06-30,1\n2015-06-30,1\n2016-06-30,1\n");
  EXPECT_EQ(years.time_text(2 + 20000), "22016-06-30 00:00:00");
  EXPECT_EQ(years.time_text(2 + 20001), "");
}

TEST(Series, ALikelyTimeIsTheFirstColumnOfRisingIntegers) {
  const auto likely = [](const std::string& text, const DataOptions& options = {}) {
    return likely_time(parsed(text, options));
  };
  EXPECT_EQ(likely("Timestamp,x\n1672531200,1\n1672531201,5\n1672534800,2\n"), "Timestamp");
  EXPECT_EQ(likely("Timestamp,x\n1,1\n2,5\n", {.time = "Timestamp"}), "");
  EXPECT_EQ(likely("x,time\n1,1\n2,2\n"), "");
  EXPECT_EQ(likely("time,x\n1,1\n0,2\n"), "");
  EXPECT_EQ(likely("time,x\n1.5,1\n2.5,2\n"), "");
  EXPECT_EQ(likely("load,x\n1,1\n2,2\n"), "");
}

TEST(Series, NamesTheCellsThatAreWrong) {
  EXPECT_THAT(refusal("a,b\n1,2\n3,four\n"), HasSubstr("\"b\" of line 3, got \"four\""));
  for (const char* cell : {"1e99", "inf", "-Infinity", "1e999", "0x10", "1;5", "1 2", "+-1", "1.5.2"})
    EXPECT_THAT(refusal(fmt::format("a\n1\n{}\n", cell)), HasSubstr(fmt::format("line 3, got \"{}\"", cell)));
  EXPECT_THAT(refusal("t,a\n2016-07-01,1\n2016-07-32,2\n"),
              AllOf(HasSubstr("a time in column \"t\" of line 3"), HasSubstr("2016-07-32")));
  EXPECT_THAT(refusal("t,a\n2016-07-02,1\n3,2\n"), AllOf(HasSubstr("dates"), HasSubstr("\"3\" in line 3")));
  for (const char* text : {"1,2\n3,4\n", "2016-07-01,2\n2016-07-02,4\n", "2016-07-01 12:00,1.5\n"})
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("header"), HasSubstr("got numbers")));
  EXPECT_THAT(refusal("a,b\n"), HasSubstr("rows behind the header"));
  EXPECT_THAT(refusal("t\n2016-07-01\n"), HasSubstr("beside the time \"t\""));
}

TEST(Series, UnknownColumnsAreAnsweredWithThoseThatExist) {
  const std::string text = "date,HUFL,OT\n2016-07-01,1,2\n";
  EXPECT_THAT(refusal<UsageError>(text, {.columns = "HULF"}),
              AllOf(HasSubstr("data.columns among date, HUFL, OT"), HasSubstr("\"HULF\""),
                    HasSubstr("did you mean \"HUFL\"?")));
  EXPECT_THAT(refusal<UsageError>(text, {.time = "dates"}),
              AllOf(HasSubstr("data.time among"), HasSubstr("did you mean \"date\"?")));
  EXPECT_THAT(refusal<UsageError>(text, {.columns = "OT,OT"}), HasSubstr("\"OT\" twice"));
  EXPECT_THAT(refusal<UsageError>(text, {.columns = "OT,"}), HasSubstr("got \"\""));
}

// 20 rows; training 0 … 11, validation 12 … 15, test 16 … 19.
TEST(Series, WindowsAndTargetsOfOneStepAreThoseByHand) {
  const TemporaryFolder folder;
  const Datasets data = open_datasets(
      {.kind = "series", .path = folder.file("a.csv", counting(20)), .length = 4, .split = "0.6,0.8"});
  for (const Dataset* part : {data.training.get(), data.validation.get(), data.test.get()}) {
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->vocabulary(), 0);
    EXPECT_THAT(part->fields(), IsEmpty());
    EXPECT_EQ(part->classes(), 0);
    EXPECT_EQ(part->length(), 4);
    EXPECT_EQ(part->columns(), 2);
    EXPECT_EQ(part->target_columns(), 2);
    EXPECT_FALSE(part->paired());
    EXPECT_THAT(part->column_names(), ElementsAre("a", "b"));
    // Of 0 … 11: mean 5.5, variance (12² − 1) / 12.
    EXPECT_THAT(part->column_statistics().mean, ElementsAre(DoubleEq(5.5), DoubleEq(105.5)));
    EXPECT_THAT(part->column_statistics().deviation, Each(DoubleEq(std::sqrt(143.0 / 12))));
  }
  ASSERT_EQ(data.training->size(), 9);
  const Example last = example(*data.training, 8);
  EXPECT_THAT(last.values, are({8, 108, 9, 109, 10, 110, 11, 111}));
  EXPECT_THAT(last.targets, are(last.values));

  ASSERT_EQ(data.validation->size(), 2);
  const Example first = example(*data.validation, 0), second = example(*data.validation, 1);
  EXPECT_THAT(first.values, are({10, 110, 11, 111, 12, 112, 13, 113}));
  EXPECT_THAT(first.targets, are({nan, nan, nan, nan, 12, 112, 13, 113}));
  EXPECT_THAT(second.values, are({12, 112, 13, 113, 14, 114, 15, 115}));
  EXPECT_THAT(second.targets, are({nan, nan, nan, nan, 14, 114, 15, 115}));

  ASSERT_EQ(data.test->size(), 2);
  EXPECT_THAT(example(*data.test, 1).targets, are({nan, nan, nan, nan, 18, 118, 19, 119}));
}

// The same rows and parts, three steps at once.
TEST(Series, WindowsAndTargetsOfAHorizonAreThoseByHand) {
  const TemporaryFolder folder;
  const Datasets data = open_datasets({.kind = "series",
                                       .path = folder.file("a.csv", counting(20)),
                                       .length = 4,
                                       .columns = "a",
                                       .split = "0.6,0.8",
                                       .horizon = 3});
  EXPECT_EQ(data.training->target_columns(), 3);
  EXPECT_THAT(data.training->target_statistics().mean, ElementsAre(5.5, 5.5, 5.5));
  EXPECT_EQ(data.training->target_statistics().deviation.size(), 3u);
  ASSERT_EQ(data.training->size(), 9);
  EXPECT_THAT(example(*data.training, 0).targets, are({0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5}));
  EXPECT_THAT(example(*data.training, 8).values, are({8, 9, 10, 11}));
  EXPECT_THAT(example(*data.training, 8).targets, are({8, 9, 10, 9, 10, 11, 10, 11, nan, 11, nan, nan}));

  // Of the steps 12 … 15 only 12 and 13 have three steps of the part from them on.
  ASSERT_EQ(data.validation->size(), 1);
  EXPECT_THAT(example(*data.validation, 0).values, are({10, 11, 12, 13}));
  EXPECT_THAT(example(*data.validation, 0).targets,
              are({nan, nan, nan, nan, nan, nan, 12, 13, 14, 13, 14, 15}));
}

TEST(Series, EveryStartWithAllItsTargetsCountsOnce) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.csv", counting(300));
  for (const std::int64_t length : {2, 3, 16, 17, 64})
    for (const std::int64_t horizon : {1, 2, 5, 30}) {
      const DataOptions options{
          .kind = "series", .path = path, .length = length, .split = "0.7,0.8", .horizon = horizon};
      const std::int64_t begin = 240, end = 300;
      const auto test = open_dataset(options, Split::test);
      std::vector<int> counted(300);
      for (std::int64_t i = 0; i < test->size(); ++i) {
        const auto [values, targets] = example(*test, i);
        for (std::int64_t k = 0; k < length; ++k) {
          const auto at = static_cast<std::size_t>(k);
          const auto row = std::span(targets).subspan(at * static_cast<std::size_t>(2 * horizon),
                                                      static_cast<std::size_t>(2 * horizon));
          const float step = values[2 * at];
          if (std::isnan(row[0])) {
            EXPECT_THAT(row, Each(IsNan()));
            continue;
          }
          EXPECT_GE(k, length / 2);
          ++counted[static_cast<std::size_t>(step)];
          for (std::int64_t h = 0; h < horizon; ++h) {
            EXPECT_EQ(row[static_cast<std::size_t>(2 * h)], step + static_cast<float>(h));
            EXPECT_EQ(row[static_cast<std::size_t>(2 * h + 1)], 100 + step + static_cast<float>(h));
          }
        }
      }
      for (std::int64_t t = 0; t < 300; ++t)
        EXPECT_EQ(counted[static_cast<std::size_t>(t)], t >= begin && t + horizon <= end ? 1 : 0)
            << t << " length " << length << " horizon " << horizon;
    }
}

// The same rows and parts, two rows in a step, three to predict.
TEST(Series, PatchesAndTheirTargetsAreThoseByHand) {
  const TemporaryFolder folder;
  const Datasets data = open_datasets({.kind = "series",
                                       .path = folder.file("a.csv", counting(20)),
                                       .length = 3,
                                       .split = "0.6,0.8",
                                       .horizon = 3,
                                       .patch = 2});
  EXPECT_EQ(data.training->patch(), 2);
  EXPECT_EQ(data.training->columns(), 4);
  EXPECT_EQ(data.training->target_columns(), 6);
  EXPECT_THAT(data.training->column_statistics().mean, ElementsAre(5.5, 105.5, 5.5, 105.5));
  EXPECT_EQ(data.training->target_statistics().deviation.size(), 6u);
  EXPECT_THAT(data.training->applied_statistics().mean, IsEmpty());
  ASSERT_EQ(data.training->size(), 7);
  const Example last = example(*data.training, 6);
  EXPECT_THAT(last.values, are({6, 106, 7, 107, 8, 108, 9, 109, 10, 110, 11, 111}));
  EXPECT_THAT(last.targets,
              are({6, 106, 7, 107, 8, 108, 8, 108, 9, 109, 10, 110, 10, 110, 11, 111, nan, nan}));

  // Of the rows 16 … 19 only 16 and 17 have three rows of the part from them on.
  ASSERT_EQ(data.test->size(), 2);
  const Example second = example(*data.test, 1);
  EXPECT_THAT(second.values, are({13, 113, 14, 114, 15, 115, 16, 116, 17, 117, 18, 118}));
  EXPECT_THAT(second.targets, are({nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan,  //
                                   17, 117, 18, 118, 19, 119}));
}

TEST(Series, ColumnsApartAreSequencesNormalisedByTheirOwnStatistics) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.csv", counting(300));
  for (const std::int64_t patch : {1, 4, 7})
    for (const std::int64_t horizon : {1, 5}) {
      const DataOptions options{.kind = "series",
                                .path = path,
                                .length = 6,
                                .split = "0.7,0.8",
                                .horizon = horizon,
                                .patch = patch,
                                .columns_apart = true};
      const Datasets data = open_datasets(options);
      EXPECT_THAT(data.training->column_names(), ElementsAre("a", "b"));
      EXPECT_EQ(data.training->size(), 2 * (210 - 6 * patch + 1));
      const Dataset& test = *data.test;
      EXPECT_EQ(test.columns(), patch);
      EXPECT_EQ(test.target_columns(), horizon);
      EXPECT_THAT(test.column_statistics().mean, Each(0));
      EXPECT_THAT(test.column_statistics().deviation, Each(1));
      const ColumnStatistics applied = test.applied_statistics();
      EXPECT_THAT(applied.mean, ElementsAre(DoubleEq(104.5), DoubleEq(204.5)));
      std::vector<std::vector<int>> counted(2, std::vector<int>(300));
      for (std::int64_t i = 0; i < test.size(); ++i) {
        const auto column = static_cast<std::size_t>(test.first_column(i));
        const auto number = [&](float z) { return z * applied.deviation[column] + applied.mean[column]; };
        const auto [values, targets] = example(test, i);
        for (std::int64_t k = 0; k < 6; ++k) {
          const float* const target = &targets[static_cast<std::size_t>(k * horizon)];
          if (std::isnan(target[0])) continue;
          EXPECT_TRUE(patch == 1 || k == 5) << k;
          // Rows are numbers from 0 in column a, from 100 in b.
          const auto row =
              std::lround(number(values[static_cast<std::size_t>(k * patch)])) - (column == 0 ? 0 : 100);
          ++counted[column][static_cast<std::size_t>(row)];
          for (std::int64_t h = 0; h < horizon; ++h)
            EXPECT_NEAR(number(target[h]), static_cast<double>(row + h) + (column == 0 ? 0 : 100), 1e-3);
        }
      }
      for (const std::vector<int>& column : counted)
        for (std::int64_t t = 0; t < 300; ++t)
          EXPECT_EQ(column[static_cast<std::size_t>(t)], t >= 240 && t + horizon <= 300 ? 1 : 0)
              << t << " patch " << patch << " horizon " << horizon;
    }
}

TEST(Series, PartsEndAtTimes) {
  const TemporaryFolder folder;
  std::string dates = "t,x\n", integers = "t,x\n";
  for (int i = 1; i <= 20; ++i) {
    dates += fmt::format("2020-01-{:02} 06:00:00,{}\n", i, i);
    integers += fmt::format("{},{}\n", 10 * i, i);
  }
  const std::string date_path = folder.file("dates.csv", dates),
                    integer_path = folder.file("integers.csv", integers);
  // Rows 1 … 10, 11 … 15 and 16 … 18.
  for (const DataOptions& options :
       {DataOptions{.kind = "series",
       .path = date_path,
       .length = 2,
       .split = "2020-01-11,2020-01-16T06:00:00,2020-01-19"},
        DataOptions{
            .kind = "series", .path = integer_path, .length = 2, .time = "t", .split = "101, 160, 190"}}) {
    const Datasets data = open_datasets(options);
    EXPECT_EQ(data.training->size(), 9);
    EXPECT_THAT(data.training->column_statistics().mean, ElementsAre(5.5));
    EXPECT_EQ(data.validation->size(), 5);
    EXPECT_THAT(example(*data.validation, 0).targets, are({nan, 11}));
    EXPECT_EQ(data.test->size(), 3);
    EXPECT_THAT(example(*data.test, 2).targets, are({nan, 18}));
  }
  EXPECT_EQ(open_datasets({.kind = "series", .path = date_path, .length = 2, .split = "2020-01-11"}).test,
            nullptr);
}

TEST(Series, ClocksThatAreSetBackAreDividedByFractionsAlone) {
  std::string text = "t,a\n";
  for (int i = 0; i < 40; ++i) text += fmt::format("{},{}\n", i < 20 ? i : i - 2, i);
  const TemporaryFolder folder;
  DataOptions options{
      .kind = "series", .path = folder.file("a.csv", text), .length = 4, .time = "t", .split = "0.5,0.75"};
  EXPECT_EQ(parse_series(text, "a.csv", options).earlier_line, 22);
  EXPECT_EQ(open_datasets(options).training->size(), 17);
  options.split = "10,30";
  EXPECT_THAT(error_of<Error>([&] { open_datasets(options); }),
              AllOf(HasSubstr("do not decrease"), HasSubstr("line 22"), HasSubstr("fractions")));
}

TEST(Series, DefaultSplitsAndFilesOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.csv", counting(100)),
                    other = folder.file("b.csv", counting(10, 500));
  const Datasets by_default = open_datasets({.kind = "series", .path = path, .length = 4});
  EXPECT_EQ(by_default.training->size(), 80 - 3);
  EXPECT_EQ(by_default.validation->size(), 10 / 2);
  EXPECT_EQ(by_default.test->size(), 10 / 2);

  const Datasets validated =
      open_datasets({.kind = "series", .path = path, .length = 4, .validation = other});
  EXPECT_EQ(validated.training->size(), 100 - 3);
  EXPECT_EQ(validated.test, nullptr);
  // The statistics are those of the training file; its first step has nothing before it.
  EXPECT_THAT(validated.validation->column_statistics().mean, ElementsAre(DoubleEq(49.5), DoubleEq(149.5)));
  EXPECT_THAT(example(*validated.validation, 0).targets, are({500, 600, 501, 601, 502, 602, 503, 603}));
  EXPECT_THAT(example(*validated.validation, 1).targets, are({nan, nan, nan, nan, 504, 604, 505, 605}));

  const Datasets tested = open_datasets({.kind = "series", .path = path, .length = 4, .test = other});
  EXPECT_EQ(tested.training->size(), 90 - 3);
  EXPECT_EQ(tested.validation->size(), 10 / 2);
  EXPECT_THAT(example(*tested.test, 0).values, are({500, 600, 501, 601, 502, 602, 503, 603}));
}

TEST(Series, SeveralFilesAreDividedEach) {
  const TemporaryFolder folder;
  const std::string list = fmt::format("{}, {}", folder.file("a.csv", counting(20)).string(),
                                       folder.file("b.csv", counting(10, 500)).string());
  const Datasets data =
      open_datasets({.kind = "series", .path = list, .length = 4, .columns = "a", .split = "0.8"});
  EXPECT_EQ(data.training->size(), 16 - 3 + 8 - 3);
  EXPECT_THAT(example(*data.training, 12).values, are({12, 13, 14, 15}));
  EXPECT_THAT(example(*data.training, 13).values, are({500, 501, 502, 503}));
  EXPECT_EQ(data.validation->size(), 2 + 1);
  EXPECT_THAT(example(*data.validation, 2).targets, are({nan, nan, 508, 509}));
  EXPECT_THAT(data.training->column_statistics().mean, ElementsAre(DoubleEq((16 * 7.5 + 8 * 503.5) / 24)));

  folder.file("b.csv", "b,a\n1,2\n");
  EXPECT_THAT(error_of([&] { open_datasets({.kind = "series", .path = list, .length = 4}); }),
              AllOf(HasSubstr("b.csv"), HasSubstr("a, b"), HasSubstr("b, a")));
}

TEST(Series, RefusesFilesAndOptionsThatCannotBe) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.csv", counting(20));
  const auto usage = [&](DataOptions options) {
    options.kind = "series";
    return error_of<UsageError>([&] { open_datasets(options); });
  };
  const auto error = [&](DataOptions options) {
    options.kind = "series";
    return error_of([&] { open_datasets(options); });
  };
  EXPECT_THAT(usage({.length = 4}), HasSubstr("path"));
  EXPECT_THAT(usage({.path = path}), HasSubstr("data.length of 2"));
  EXPECT_THAT(usage({.path = path, .length = 4, .horizon = 0}), HasSubstr("data.horizon of 1"));
  EXPECT_THAT(usage({.path = path, .length = 4, .patch = 0}), HasSubstr("data.patch of 1"));
  EXPECT_THAT(error({.path = path, .length = 3, .patch = 6}),
              AllOf(HasSubstr("data.length · data.patch = 18 rows, got 16")));
  EXPECT_THAT(usage({.path = path, .length = 4, .missing = "drop"}), HasSubstr("data.missing among"));
  EXPECT_THAT(usage({.path = path, .length = 4, .validation = path, .split = "0.5"}), HasSubstr("got both"));
  for (const char* split :
       {",", "0.5,0.6,0.7,0.8", "0.5,0.5", "0.6,0.5", "0.001,0.5", "1", "0,0.5", "half", "1.5", "2016-07-01"})
    EXPECT_THAT(usage({.path = path, .length = 4, .split = split}), HasSubstr("data.split")) << split;
  EXPECT_THAT(error({.path = path, .length = 17}),
              AllOf(HasSubstr("a.csv"), HasSubstr("data.length = 17 rows, got 16")));
  EXPECT_THAT(error({.path = path, .length = 4, .horizon = 3}),
              AllOf(HasSubstr("validation part"), HasSubstr("data.horizon = 3 rows, got 2")));
  EXPECT_THAT(error({.path = path, .length = 4, .validation = folder.file("b.csv", counting(3))}),
              AllOf(HasSubstr("b.csv"), HasSubstr("data.length = 4 rows, got 3")));
  EXPECT_THAT(error({.path = folder / "none.csv", .length = 4}), HasSubstr("none.csv"));
}

TEST(Series, ColumnsThatF32CannotTellApartAreRefused) {
  const TemporaryFolder folder;
  const auto written = [&](double offset, double step) {
    std::string text = "a,b\n";
    for (int i = 0; i < 40; ++i) text += fmt::format("{},{:.6f}\n", i, offset + step * i);
    return DataOptions{.kind = "series", .path = folder.file("b.csv", text), .length = 4};
  };
  EXPECT_THAT(error_of([&] { open_datasets(written(1e9, 1)); }),
              AllOf(HasSubstr("b.csv: expected numbers that f32 can hold in column \"b\""),
                    HasSubstr("subtract a constant")));
  EXPECT_NO_THROW(open_datasets(written(1e9, 512)));   // which it holds exactly
  EXPECT_NO_THROW(open_datasets(written(1e4, 0.01)));  // which it rounds by a 1/20 of a step
  EXPECT_NO_THROW(open_datasets(written(1e9, 0)));
}

// The standard split of ETTh1: 12, 4 and 4 months of 30 days.
TEST(Series, ElectricityTransformersHaveTheWindowsOfTheBenchmark) {
  const std::filesystem::path path = data_folder() / "series" / "ETTh1.csv";
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "needs " << path << "; set LINNET_DATA to the folder that holds series/";
  const Datasets data = open_datasets({.kind = "series",
                                       .path = path,
                                       .length = 512,
                                       .split = "2017-06-26 00:00:00,2017-10-24 00:00:00,2018-02-21 00:00:00",
                                       .horizon = 96});
  EXPECT_EQ(data.training->size(), 8640 - 512 + 1);
  EXPECT_THAT(data.training->column_names(),
              ElementsAre("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"));
  for (const Dataset* part : {data.validation.get(), data.test.get()}) {
    std::int64_t starts = 0;
    for (std::int64_t i = 0; i < part->size(); ++i) {
      const auto [values, targets] = example(*part, i);
      for (std::size_t k = 0; k < targets.size(); k += 96 * 7) starts += !std::isnan(targets[k]);
    }
    EXPECT_EQ(starts, 2880 - 96 + 1);
  }
  // As the benchmark's scaler has them for the oil temperature.
  EXPECT_NEAR(data.training->column_statistics().mean[6], 17.1283, 1e-3);
  EXPECT_NEAR(data.training->column_statistics().deviation[6], 9.1765, 1e-3);
}

}  // namespace
}  // namespace linnet
