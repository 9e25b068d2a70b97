// Commands on models of series and of several fields: train, evaluate, forecast, score, generate.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "apps/refusal.h"
#include "apps/sequence_runs.h"
#include "io/file.h"
#include "io/json.h"
#include "io/png.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::HasSubstr;

TEST_F(SeriesProgram, IsEvaluatedInDeviationsBesideRepeatingTheLastNumber) {
  train();
  for (const char* split : {"validation", "test", "training"}) {
    const Json json = json_of(succeed({"evaluate", path("run"), "--split", split, "--json"}));
    EXPECT_GT(json["tokens"], 0);
    EXPECT_TRUE(std::isfinite(json["bits_per_token"].get<double>()));
    for (const char* key : {"squared_error", "absolute_error", "naive_squared_error", "naive_absolute_error"})
      EXPECT_GE(json[key].get<double>(), 0) << key;
  }
  // Repeating the last number: computed here from the rows of the validation part, 480 … 539 of 600.
  const auto value = [](int row) { return std::sin(0.3 * row) + (row == 500 ? 40 : 0); };
  double mean = 0, square = 0;
  for (int i = 0; i < 480; ++i) mean += value(i) / 480;
  for (int i = 0; i < 480; ++i) square += (value(i) - mean) * (value(i) - mean) / 480;
  double ramp = 0;
  for (int i = 0; i < 480; ++i) ramp += std::pow(0.01 * (i - 239.5), 2) / 480;
  double expected = 0;
  for (int i = 480; i < 540; ++i)
    expected += (std::pow(value(i) - value(i - 1), 2) / square + 0.01 * 0.01 / ramp) / 120;
  const Json json = json_of(succeed({"evaluate", path("run"), "--json"}));
  EXPECT_EQ(json["tokens"], 120);
  EXPECT_TRUE(json["seasonal_squared_error"].is_null());
  EXPECT_NEAR(json["naive_squared_error"].get<double>(), expected, 1e-3 * expected);
  EXPECT_THAT(succeed({"evaluate", path("run")}).out, HasSubstr("repeating the last number"));
  // An error of 1 in the units of the file.
  EXPECT_NEAR(json["columns"][0]["deviation"].get<double>(), std::sqrt(square), 1e-4 * std::sqrt(square));
  EXPECT_NEAR(json["columns"][1]["deviation"].get<double>(), std::sqrt(ramp), 1e-4 * std::sqrt(ramp));
}

TEST_F(SeriesProgram, EmptyCellsOfOtherFilesAreFilledWhereThatIsAskedFor) {
  train();
  std::string text = read_file(path("series.csv"));
  // The last cell of the third line, as that of the second.
  const auto line = [&](int number) {
    std::size_t at = 0;
    for (int i = 1; i < number; ++i) at = text.find('\n', at) + 1;
    return std::pair(at, text.find('\n', at));
  };
  const auto [first, first_end] = line(2);
  const std::string last =
      text.substr(text.rfind(',', first_end) + 1, first_end - text.rfind(',', first_end) - 1);
  const auto [third, third_end] = line(3);
  const std::size_t comma = text.rfind(',', third_end);
  std::string filled = text, gap = text;
  filled.replace(comma + 1, third_end - comma - 1, last);
  gap.erase(comma + 1, third_end - comma - 1);
  folder_.file("filled.csv", filled);
  folder_.file("gap.csv", gap);
  for (const Strings& command : {Strings{"score"}, Strings{"forecast"}, Strings{"evaluate"}}) {
    const auto result = [&](const std::string& file, const Strings& more) {
      Json json =
          json_of(succeed(joined(joined(command, {path("run"), "--data", path(file), "--json"}), more)));
      json.erase("seconds");
      json.erase("steps_per_second");
      json.erase("data");
      return json;
    };
    EXPECT_EQ(result("gap.csv", {"--missing", "forward-fill"}), result("filled.csv", {})) << command[0];
    refuses(failed, joined(command, {path("run"), "--data", path("gap.csv")}),
            {"--missing forward-fill", "line 3"});
    refuses(usage, joined(command, {path("run"), "--data", path("gap.csv"), "--missing", "drop"}),
            {"--missing", "drop"});
  }
}

TEST_F(SeriesProgram, DataThatHaveChangedAreWarnedOf) {
  train();
  const std::string series = read_file(path("series.csv"));
  for (const Strings& command : {Strings{"evaluate", path("run")},
                                 {"forecast", path("run"), "--steps", "3"},
                                 {"score", path("run")}}) {
    EXPECT_THAT(succeed(command).err, testing::Not(HasSubstr("warning: the data")));
    folder_.file("series.csv", series.substr(0, series.find("\n500,") + 1));
    EXPECT_THAT(succeed(command).err, HasSubstr("warning: the data of the run have changed since it began"));
    folder_.file("series.csv", series);
  }
}

TEST_F(SeriesProgram, FilesThatAreGivenHaveThePartsOfTheRun) {
  train({"data.split=0.3,0.7"});
  folder_.file("copy.csv", read_file(path("series.csv")));
  for (const char* split : {"validation", "training"}) {
    const Strings evaluation = {"evaluate", path("run"), "--split", split, "--json"};
    const Json own = json_of(succeed(evaluation));
    EXPECT_EQ(own["tokens"], split == std::string("validation") ? 2 * (420 - 180) : own["tokens"].get<int>());
    for (const char* file : {"series.csv", "copy.csv"}) {
      const Json given = json_of(succeed(joined(evaluation, {"--data", path(file)})));
      EXPECT_EQ(given["tokens"], own["tokens"]) << file;
      EXPECT_EQ(given["bits_per_token"], own["bits_per_token"]) << file;
    }
  }
}

TEST_F(SeriesProgram, IsForecastWithMediansBetweenTheirBounds) {
  for (const Strings& settings : {Strings{}, {"data.horizon=3", "model.value_head=student-t"}}) {
    train(settings);
    const Json json =
        json_of(succeed({"forecast", path("run"), "--steps", "7", "--samples", "50", "--intervals", "50,90",
                         "--plot", path("plot.svg"), "--out", path("next.csv"), "--json"}));
    ASSERT_EQ(json["forecast"].size(), 14u);
    for (const Json& row : json["forecast"]) {
      EXPECT_LE(row["low_90"], row["low_50"]);
      EXPECT_LE(row["low_50"], row["median"]);
      EXPECT_LE(row["median"], row["high_50"]);
      EXPECT_LE(row["high_50"], row["high_90"]);
    }
    EXPECT_EQ(lines_of(read_file(path("next.csv"))).size(), 15u);
    EXPECT_THAT(read_file(path("plot.svg")), HasSubstr("ramp"));
    const Strings again = {"forecast", path("run"), "--steps", "4", "--seed", "3"};
    EXPECT_EQ(succeed(again).out, succeed(joined(again, {"--threads", "1"})).out);
    std::filesystem::remove_all(path("run"));
  }
}

TEST_F(SeriesProgram, IsScoredAsAStreamAndItsJumpIsAnAnomaly) {
  train();
  const Json json = json_of(succeed({"score", path("run"), "--calibrate", "400", "--quantile", "1", "--out",
                                     path("scores.csv"), "--plot", path("scores.png"), "--json"}));
  EXPECT_EQ(json["steps"], rows);
  bool found = false;
  for (const Json& anomaly : json["anomalies"]) {
    const int first = anomaly["first"], last = anomaly["last"];
    if (first > 500 || last < 500) continue;
    found = true;
    EXPECT_GE(first, 499);
    EXPECT_LE(last, 504);
  }
  EXPECT_TRUE(found) << json.dump();
  const auto lines = numbers_of(read_file(path("scores.csv")));
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(rows));
  const double threshold = json["threshold"];
  double sum = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i].size(), 7u);
    EXPECT_EQ(lines[i][0], i);
    EXPECT_EQ(lines[i][1], i);
    const double smoothed = lines[i][3];
    sum += lines[i][2];
    EXPECT_NEAR(lines[i][2], lines[i][5] + lines[i][6],
                1e-5 * (std::abs(lines[i][5]) + std::abs(lines[i][6])));
    // The threshold is the highest of the first scores, of which the file has seven digits.
    if (std::abs(smoothed - threshold) > 1e-6 * std::abs(threshold)) {
      EXPECT_EQ(lines[i][4], i > 0 && smoothed > threshold) << i;
    } else {
      EXPECT_EQ(lines[i][4], 0) << i;
    }
  }
  EXPECT_NEAR(sum / rows, json["nats_per_step"].get<double>(), 1e-4);
}

// Steps of patches whose columns are apart have the units of the file in everything that is printed.
TEST_F(SeriesProgram, ColumnsApartAreEvaluatedForecastAndScoredInTheirUnits) {
  train({"data.columns_apart=true", "data.patch=4", "data.horizon=6", "data.length=8",
         "model.relative_inputs=true", "model.value_head=student-t"});
  const Json columns = parse_json(read_file(path("run") + "/columns.json"), "columns.json");
  EXPECT_EQ(columns["names"], Json({"wave", "ramp"}));
  EXPECT_NEAR(columns["mean"][1].get<double>(), 2.395, 1e-4);  // of 0 … 4.79

  const Json json = json_of(succeed({"evaluate", path("run"), "--json"}));
  EXPECT_EQ(json["examples"], 2 * (60 - 5));
  EXPECT_EQ(json["tokens"], 2 * (60 - 5) * 6);
  ASSERT_EQ(json["columns"].size(), 2u);
  EXPECT_EQ(json["columns"][1]["column"], "ramp");
  double mean = 0;
  for (const Json& column : json["columns"]) mean += column["squared_error"].get<double>() / 2;
  EXPECT_NEAR(mean, json["squared_error"].get<double>(), 1e-6 * mean);
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["rows"], "1");
  EXPECT_NEAR(json["rows"][1]["squared_error"].get<double>(), json["squared_error"].get<double>(),
              1e-6 * mean);
  // Row h ahead of the last one differs by 0.01 h.
  const double deviation = columns["deviation"][1].get<double>();
  EXPECT_NEAR(json["columns"][1]["deviation"].get<double>(), deviation, 1e-5 * deviation);
  EXPECT_NEAR(json["columns"][1]["naive_absolute_error"].get<double>(), 0.035 / deviation, 1e-5);

  // Repeating the last step, of four rows: those of rows 5 and 6 once more.
  EXPECT_NEAR(json["columns"][1]["seasonal_absolute_error"].get<double>(),
              (4 * 0.04 + 2 * 0.08) / 6 / deviation, 1e-5);
  EXPECT_THAT(succeed({"evaluate", path("run")}).out, HasSubstr("repeating the last step of 4 rows"));

  // Another file is normalised by the same rows of the run's own.
  folder_.file("copy.csv", read_file(path("series.csv")));
  const Json other =
      json_of(succeed({"evaluate", path("run"), "--data", path("copy.csv"), "--split", "test", "--json"}));
  EXPECT_NEAR(other["columns"][1]["naive_absolute_error"].get<double>(), 0.035 / deviation, 1e-5);

  const Json next = json_of(succeed({"forecast", path("run"), "--steps", "13", "--samples", "60", "--json"}));
  EXPECT_EQ(next["context"], 28);
  ASSERT_EQ(next["forecast"].size(), 26u);
  for (const Json& row : next["forecast"])
    if (row["column"] == "ramp") {
      EXPECT_NEAR(row["median"].get<double>(), 6, 3 * deviation) << row;
    }
  const Json scored = json_of(succeed({"score", path("run"), "--out", path("scores.csv"), "--json"}));
  EXPECT_EQ(scored["steps"], rows);
  EXPECT_EQ(scored["calibrated"], 480);
  EXPECT_GT(scored["state_bytes"], 0);
  EXPECT_EQ(lines_of(read_file(path("scores.csv"))).size(), rows + 1u);
}

// A sum from which scores were taken off again would keep what the largest one rounded away.
TEST_F(SeriesProgram, AHugeScoreDoesNotStayInTheMeansOfLaterOnes) {
  train({"model.value_head=gaussian"});
  std::string text = "time,wave,ramp\n";
  for (int i = 0; i < 60; ++i)
    text += fmt::format("{},{},{}\n", i, i == 20 ? 1e9 : std::sin(0.3 * i), 0.01 * i);
  const std::string data = folder_.file("glitch.csv", text);
  const auto column = [&](const Strings& arguments, const std::string& name) {
    succeed(joined({"score", path("run"), "--data", data, "--out", path("scores.csv")}, arguments));
    const Strings lines = lines_of(read_file(path("scores.csv")));
    EXPECT_EQ(lines.front(), "row,time,score,smoothed,anomaly,score_wave,score_ramp");
    std::vector<double> numbers;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      std::istringstream cells(lines[i]);
      std::string row, time, score, smoothed;
      for (std::string* cell : {&row, &time, &score, &smoothed}) std::getline(cells, *cell, ',');
      numbers.push_back(std::stod(name == "score" ? score : smoothed));
    }
    return numbers;
  };
  const std::vector<double> scores = column({}, "score"), means = column({"--window", "7"}, "smoothed");
  ASSERT_EQ(scores.size(), 60u);
  ASSERT_EQ(means.size(), 60u);
  for (std::size_t i = 7; i < 60; ++i) {
    double sum = 0;
    for (std::size_t j = i - 6; j <= i; ++j) sum += scores[j];
    EXPECT_NEAR(means[i], sum / 7, 1e-5 * std::max(1.0, std::abs(sum))) << i;
  }
}

// Of numbers near the end of the range of floats nothing can be said: a fill value, such as that of NetCDF.
TEST_F(SeriesProgram, NumbersThatAreTooLargeForTheModelAreAFailureThatNamesThem) {
  for (const char* head : {"student-t", "gaussian"}) {
    train({fmt::format("model.value_head={}", head)});
    std::string text = "time,wave,ramp\n";
    for (int i = 0; i < 60; ++i)
      text += fmt::format("{},{},{}\n", i, i == 50 ? "9.96921e36" : "0.5", 0.01 * i);
    const std::string data = folder_.file("fill.csv", text), out = path("out.csv");
    refuses(failed, {"score", path("run"), "--data", data, "--out", out},
            {"[score] cannot take row 50", "[step] expected a prediction of finite numbers"});
    refuses(failed, {"forecast", path("run"), "--data", data, "--out", out}, {"expected", "finite"});
    refuses(failed, {"generate", path("run"), "--prompt-file", data, "--out", out}, {"expected", "finite"});
    EXPECT_FALSE(std::filesystem::exists(out));
    std::filesystem::remove_all(path("run"));
  }
}

TEST_F(SeriesProgram, TrainingSaysWhatItReads) {
  const auto said = [&](const std::string& data, const Strings& settings) {
    std::filesystem::remove_all(path("run"));
    return succeed(joined(joined({"train", path("series.toml"), "--data", data, "--out", path("run")}, tiny),
                          joined(settings, {"training.steps=1"})))
        .err;
  };
  EXPECT_THAT(said(path("series.csv"), {}), HasSubstr("columns: wave, ramp; time: time\n"));
  folder_.file("series.toml", "[data]\nkind = \"series\"\nlength = 32\n");
  EXPECT_THAT(
      said(path("series.csv"), {}),
      testing::AllOf(HasSubstr("columns: time, wave, ramp; time: none\n"),
                     HasSubstr("warning: the column \"time\" is learned"), HasSubstr("data.time=time")));
  EXPECT_THAT(said(path("series.csv"), {"data.time=time"}), testing::Not(HasSubstr("warning")));
}

TEST_F(SeriesProgram, WhatFollowsASeriesHasItsColumns) {
  const auto next = [&](const std::string& header, const std::function<std::string(int)>& before) {
    std::string text = header + "\n";
    for (int i = 0; i < 200; ++i)
      text += fmt::format("{}{:.3f},{}\n", before(i), std::sin(0.3 * i), 0.01 * i);
    folder_.file("series.csv", text);
    std::filesystem::remove_all(path("run"));
    train({"data.time="});
    succeed({"generate", path("run"), "--prompt-file", path("series.csv"), "--length", "2", "--out",
             path("next.csv")});
    return lines_of(read_file(path("next.csv")));
  };
  const Strings dated =
      next("at,wave,ramp", [](int i) { return fmt::format("2026-01-01 {:02}:{:02},", i / 60, i % 60); });
  ASSERT_EQ(dated.size(), 3u);
  EXPECT_EQ(dated[0], "at,wave,ramp");
  EXPECT_THAT(dated[1], testing::StartsWith("2026-01-01 03:20"));
  const Strings untimed = next("wave,ramp", [](int) { return std::string(); });
  ASSERT_EQ(untimed.size(), 3u);
  EXPECT_EQ(untimed[0], "wave,ramp");
  EXPECT_EQ(std::ranges::count(untimed[1], ','), 1);
}

TEST_F(SeriesProgram, WhatGoesBeyond64BitsOrTheMemoryIsASentence) {
  train();
  std::string text = "time,wave,ramp\n";
  for (const char* last : {"3", "4", "5"}) text += std::string("922337203685477580") + last + ",1,1\n";
  const std::string data = folder_.file("late.csv", text);
  const Strings next = {"generate", path("run"),      "--prompt-file", data,
                        "--out",    path("next.csv"), "--length"};
  succeed(joined(next, {"2"}));
  EXPECT_THAT(read_file(path("next.csv")), HasSubstr("\n9223372036854775807,"));
  refuses(failed, joined(next, {"3"}), {"64 bits", "9223372036854775805"});
  refuses(failed, {"forecast", path("run"), "--steps", "16777216", "--samples", "65536"},
          {"[memory]", "the draws"});
}

TEST_F(SeriesProgram, IntervalsDiffer) {
  train();
  refuses(usage, {"forecast", path("run"), "--intervals", "50,90,50"}, {"--intervals", "50 twice"});
}

/// A picture has a largest height, too, and letters a least size.
TEST_F(SeriesProgram, PicturesTooLargeForTwoPixelsAPointHaveFewer) {
  const auto forecast_of = [&](const std::string& header, int columns) -> Strings {
    std::string text = header;
    for (int c = 1; c < columns; ++c) text += fmt::format(",c{}", c);
    for (int i = 0; i < 20; ++i) {
      text += "\n0";
      for (int c = 1; c < columns; ++c) text += ",1";
    }
    folder_.file("series.csv", text + "\n");
    folder_.file("series.toml", "[data]\nkind = \"series\"\nlength = 4\n[training]\nsteps = 1\n");
    std::filesystem::remove_all(path("run"));
    train({"data.split=0.5,0.9"});
    return {"forecast", path("run"), "--steps", "2", "--samples", "2", "--plot"};
  };
  std::string words;
  while (words.size() < 80'000) words += "a long name ";
  const Ended png = run_linnet(joined(forecast_of(words, 1), {path("plot.png")}));
  if (png.err.find("built without cairo") != std::string::npos) GTEST_SKIP() << png.err;
  ASSERT_EQ(png.status, 0) << png.err;
  EXPECT_GT(read_png(path("plot.png")).height, 30'000);
  const Strings many = forecast_of("c0", 1001);
  refuses(usage, joined(many, {path("many.png")}), {".svg", "1000", "1001", "many.png"});
  succeed(joined(many, {path("many.svg")}));
}

TEST_F(SeriesProgram, TextThatTheRecordCannotHoldIsRefusedBeforeTheFirstUpdate) {
  std::string text = "time,Temp\xe9rature\n";
  for (int i = 0; i < 200; ++i) text += fmt::format("{},{}\n", i, std::sin(0.3 * i));
  folder_.file("series.csv", text);
  refuses(
      usage,
      joined(joined({"train", path("series.toml"), "--data", path("series.csv"), "--out", path("run")}, tiny),
             {"data.columns=Temp\xe9rature"}),
      {"data.columns in UTF-8"});
}

TEST_F(SeriesProgram, SquaredErrorsGiveMeansWithoutIntervals) {
  train({"model.value_head=squared-error"});
  const Json json = json_of(succeed({"forecast", path("run"), "--steps", "3", "--json"}));
  EXPECT_EQ(json["samples"], 1);
  ASSERT_EQ(json["forecast"].size(), 6u);
  EXPECT_FALSE(json["forecast"][0].contains("low_50"));
  EXPECT_TRUE(json["forecast"][0].contains("mean"));
  EXPECT_TRUE(succeed({"forecast", path("run"), "--steps", "1"}).out.starts_with("step,time,column,mean\n"));
  for (const char* option : {"--intervals", "--samples", "--seed"})
    refuses(usage, {"forecast", path("run"), option, "80"}, {option, "squared-error", "means alone"});
  for (const char* option : {"--seed", "--temperature"})
    refuses(usage,
            {"generate", path("run"), "--prompt-file", path("series.csv"), "--out", path("next.csv"), option,
             "1"},
            {option, "means alone"});
}

TEST_F(SeriesProgram, WhatIsNoSeriesIsRefused) {
  train();
  folder_.file("one.csv", "wave\n1\n2\n");
  refuses(usage, {"forecast", path("run"), "--data", path("one.csv")}, {"time"});
  refuses(usage, {"generate", path("run")}, {"linnet forecast"});
  refuses(usage, {"classify", path("run"), "--data", "digits"}, {"classify"});
  refuses(usage,
          {"forecast", std::string(LINNET_SOURCE_FOLDER) + "/models/digits", "--data", path("series.csv")},
          {"tokens"});
}

TEST_F(SeriesProgram, IsContinuedAsAFileOfTheSameColumns) {
  train({"data.horizon=3"});
  const Strings next = {"generate", path("run"), "--prompt-file", path("series.csv"), "--length", "5"};
  succeed(joined(next, {"--out", path("next.csv"), "--seed", "4"}));
  const std::vector<std::string> lines = lines_of(read_file(path("next.csv")));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "time,wave,ramp");
  for (int i = 1; i <= 5; ++i)
    EXPECT_EQ(lines[static_cast<std::size_t>(i)].find(std::to_string(rows - 1 + i) + ","), 0u) << lines[1];
  succeed(joined(next, {"--out", path("again.csv"), "--seed", "4", "--threads", "1"}));
  EXPECT_EQ(read_file(path("again.csv")), read_file(path("next.csv")));
  succeed(joined(next, {"--out", path("other.csv"), "--seed", "5"}));
  EXPECT_NE(read_file(path("other.csv")), read_file(path("next.csv")));
  // Without chance it is what the forecast says, for the rows of one prediction.
  const Strings three = {"generate", path("run"), "--prompt-file", path("series.csv"), "--length", "3"};
  succeed(joined(three, {"--out", path("mean.csv"), "--temperature", "0"}));
  EXPECT_EQ(lines_of(read_file(path("mean.csv"))).size(), 4u);
  refuses(usage, joined(next, {"--out", path("next.txt")}), {".csv", ".wav", "next.txt"});
  refuses(usage, {"generate", path("run"), "--out", path("next.csv")}, {"--prompt-file", "series"});
  for (const Strings& other : {Strings{"--top-k", "3"}, Strings{"--top-p", "0.5"}})
    refuses(usage, joined(joined(three, other), {"--out", path("no.csv")}), {other.front(), "real numbers"});
  for (const Strings& other : {Strings{"--streams", "3"}, Strings{"--beats", "90"}})
    refuses(usage, joined(joined(three, other), {"--out", path("no.csv")}), {other.front(), "series"});
  refuses(usage, joined(next, {"--out", path("next.csv"), "--count", "2"}), {"--count"});
}

TEST_F(FieldsProgram, MoreSequencesThanTheMemoryHoldsAreRefused) {
  refuses(
      failed,
      {"generate", path("run"), "--count", "100000", "--length", "16777216", "--out", path("o.safetensors")},
      {"[memory]", "the sequences"});
}

TEST_F(FieldsProgram, EvaluationGivesTheBitsOfEveryField) {
  const Json json = json_of(succeed({"evaluate", path("run"), "--json"}));
  ASSERT_EQ(json["field_bits"].size(), 2u);
  EXPECT_NEAR((json["field_bits"][0].get<double>() + json["field_bits"][1].get<double>()) / 2,
              json["bits_per_token"].get<double>(), 1e-5);
  EXPECT_THAT(succeed({"evaluate", path("run")}).out, HasSubstr("nats) per step"));
}

TEST_F(FieldsProgram, GeneratesTokenFilesMidiFilesAndPianoRolls) {
  const Strings common = {"generate", path("run"), "--seed", "5", "--length", "12"};
  succeed(joined(common, {"--count", "3", "--out", path("new.safetensors")}));
  const Safetensors file = Safetensors::read(path("new.safetensors"));
  EXPECT_EQ(file.shape("tokens"), (Shape{36, 2}));
  EXPECT_EQ(file.shape("offsets"), Shape{4});
  // What was written is data again.
  succeed(joined(
      {"train", path("fields.toml"), "--data", path("pieces.safetensors"), "--out", path("more")},
      joined(tiny, {"data.validation=" + path("new.safetensors"), "data.length=12", "model.length=12"})));
  succeed(joined(common, {"--out", path("piece.mid")}));
  EXPECT_EQ(read_file(path("piece.mid")).substr(0, 4), "MThd");
  succeed(joined(common, {"--out", path("piece.png")}));
  EXPECT_EQ(read_png(path("piece.png")).width, 48);
  refuses(usage, joined(common, {"--out", path("piece.wav")}), {".safetensors, .mid or .png"});
  refuses(usage, joined(common, {"--count", "2", "--out", path("piece.mid")}), {"--count 1"});
  refuses(usage, joined(common, {"--prompt", "a", "--out", path("piece.mid")}), {"--prompt"});
}

TEST(PackingProgram, TrainsOnFewerExamplesAndSaysWhatItCannotPack) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "a\t" + std::string(static_cast<std::size_t>(1 + i % 5), 'b') + "\n";
  const std::string data = folder.file("lines.tsv", text),
                    config = folder.file("lines.toml",
                                         "[data]\nkind = \"lines\"\nlength = 20\npacking = true\n"
                                         "labels = false\n[training]\nsteps = 2\n");
  const auto train = [&](const std::string& run, const Strings& settings) {
    return joined(joined({"train", config, "--data", data, "--out", folder / run}, tiny), settings);
  };
  // 54 training lines of 1 … 5 bytes have 150 bytes: at least 8 examples of 20.
  EXPECT_THAT(succeed(train("packed", {})).err, HasSubstr("training on 8 examples of lines"));
  EXPECT_THAT(succeed(train("padded", {"data.packing=false"})).err,
              HasSubstr("training on 54 examples of lines"));
  const auto tokens = [&](const std::string& run) {
    return json_of(succeed({"evaluate", folder / run, "--json"}))["tokens"];
  };
  EXPECT_EQ(tokens("packed"), tokens("padded"));
  refuses(usage, train("lsh", {"attention.family=lsh"}), {"data.packing", "lsh"});
  refuses(usage, train("text", {"data.kind=text"}), {"data.packing", "\"text\""});
}

}  // namespace
}  // namespace linnet
