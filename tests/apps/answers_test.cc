// What score, forecast, classify and generate say, worked out again from what they write.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

#include "apps/refusal.h"
#include "apps/sequence_runs.h"
#include "data/token_file.h"
#include "io/file.h"
#include "io/midi.h"
#include "io/safetensors.h"
#include "linnet/generation.h"

namespace linnet {
namespace {

using testing::HasSubstr;

/// Steps above a threshold.
struct Stretch {
  std::int64_t first, last;
  double highest;
};

/// Those of the scores of all steps but the first, which none stand before; up to `gap` others stand between
/// two steps of a stretch.
std::vector<Stretch> stretches_above(double threshold, const std::vector<double>& scores, std::int64_t gap) {
  std::vector<Stretch> result;
  for (std::int64_t i = 1; i < std::ssize(scores); ++i) {
    const double score = scores[static_cast<std::size_t>(i)];
    if (score <= threshold) continue;
    if (result.empty() || i - result.back().last - 1 > gap) result.push_back({i, i, score});
    result.back().last = i;
    result.back().highest = std::max(result.back().highest, score);
  }
  return result;
}

class Scores : public SeriesProgram {
 protected:
  /// Scores the run's series, or another one, and reads the means of the scores.
  Json score(const Strings& arguments) {
    const Json json =
        json_of(succeed(joined({"score", path("run"), "--out", path("scores.csv"), "--json"}, arguments)));
    smoothed_.clear();
    for (const std::vector<double>& row : numbers_of(read_file(path("scores.csv"))))
      smoothed_.push_back(row.at(3));
    return json;
  }

  std::vector<double> smoothed_;
};

TEST_F(Scores, AnomaliesAreStepsAboveTheThresholdWithSoManyOthersBetween) {
  train();
  for (const Strings& other : {Strings{"--quantile", "0.9"}, Strings{"--calibrate", "100"}})
    refuses(usage, joined({"score", path("run"), "--threshold", "1"}, other), {other.front(), "--threshold"});
  for (const Strings& window : {Strings{}, {"--window", "3"}}) {
    score(window);
    std::vector<double> falling(smoothed_.begin() + 1, smoothed_.end());
    std::ranges::sort(falling, std::greater<>());
    std::size_t split = 0, joined_together = 0;
    for (std::size_t above : {3u, 120u, 250u}) {
      while (falling[above - 1] - falling[above] < 1e-4) ++above;  // the file has seven digits
      const double threshold = (falling[above - 1] + falling[above]) / 2;
      for (const std::int64_t gap : {0, 12}) {
        SCOPED_TRACE(testing::Message() << "threshold " << threshold << ", gap " << gap);
        const Json json = score(
            joined(window, {"--threshold", fmt::format("{}", threshold), "--gap", std::to_string(gap)}));
        EXPECT_EQ(json["threshold"], threshold);
        const std::vector<Stretch> expected = stretches_above(threshold, smoothed_, gap);
        ASSERT_EQ(json["anomalies"].size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(json["anomalies"][i]["first"], expected[i].first);
          EXPECT_EQ(json["anomalies"][i]["last"], expected[i].last);
          EXPECT_NEAR(json["anomalies"][i]["highest"].get<double>(), expected[i].highest,
                      1e-6 * std::abs(expected[i].highest));
        }
        (gap == 0 ? split : joined_together) += expected.size();
      }
    }
    EXPECT_LT(joined_together, split);
  }
}

// Of few steps the share below the threshold is that of the steps themselves. With ten of them in the tail
// beyond the 98th percentile the excess is exponential.
TEST_F(Scores, DefaultThresholdIsThatOfTheQuantileRule) {
  train();
  folder_.file("copy.csv", read_file(path("series.csv")));
  const auto expect_rule = [&](const Strings& arguments, std::size_t calibrated, double share, bool tail) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Json json = score(arguments);
    EXPECT_EQ(json["calibrated"], calibrated);
    std::vector<double> rising(smoothed_.begin() + 1,
                               smoothed_.begin() + static_cast<std::ptrdiff_t>(calibrated));
    std::ranges::sort(rising);
    const auto quantile = [&](double of) {
      const double place = of * static_cast<double>(rising.size() - 1), below = std::floor(place);
      const auto at = static_cast<std::size_t>(below);
      return std::lerp(rising[at], rising[std::min(at + 1, rising.size() - 1)], place - below);
    };
    double expected = quantile(share);
    if (tail) {
      const double begin = quantile(0.98);
      double excess = 0;
      int beyond = 0;
      for (const double score : rising)
        if (score > begin) {
          excess += score - begin;
          ++beyond;
        }
      EXPECT_GE(beyond, 10);
      expected = begin + excess / beyond * std::log(0.02 / (1 - share));
    }
    EXPECT_NEAR(json["threshold"].get<double>(), expected, 1e-5 * std::max(1.0, std::abs(expected)));
  };
  expect_rule({}, 480, 0.9999, true);
  expect_rule({"--window", "4"}, 480, 0.9999, true);
  expect_rule({"--calibrate", "300"}, 300, 0.9999, false);
  expect_rule({"--calibrate", "600", "--quantile", "0.999"}, 600, 0.999, true);
  expect_rule({"--quantile", "0.9"}, 480, 0.9, false);
  expect_rule({"--quantile", "1"}, 480, 1, false);
  expect_rule({"--data", path("copy.csv")}, 600, 0.9999, true);
}

TEST_F(Scores, StepsWithoutContextAreNoAnomaliesAndGiveNoThreshold) {
  train({"data.patch=4", "data.horizon=4"});
  const auto flags = [&] {
    std::vector<double> result;
    for (const std::vector<double>& row : numbers_of(read_file(path("scores.csv"))))
      result.push_back(row.at(4));
    return result;
  };
  Json json = score({"--threshold", "-1000"});
  ASSERT_EQ(json["anomalies"].size(), 1u);
  EXPECT_EQ(json["anomalies"][0]["first"], 4);
  EXPECT_EQ(json["anomalies"][0]["last"], rows - 1);
  EXPECT_EQ(std::ranges::count(flags(), 1.0), rows - 4);
  EXPECT_EQ(flags()[3], 0);
  // A huge number in the first step is in no mean of later ones.
  std::string text = "time,wave,ramp\n";
  for (int i = 0; i < 60; ++i)
    text += fmt::format("{},{},{}\n", i, i == 1 ? 1e6 : std::sin(0.3 * i), 0.01 * i);
  score({"--data", folder_.file("first.csv", text).string()});
  const std::vector<double> exact = smoothed_;
  json = score({"--data", path("first.csv"), "--window", "3"});
  EXPECT_NEAR(smoothed_[4], exact[4], 1e-5 * std::abs(exact[4]));
  EXPECT_NEAR(smoothed_[5], (exact[4] + exact[5]) / 2, 1e-5 * std::abs(exact[4] + exact[5]));
  EXPECT_LT(json["threshold"].get<double>(), *std::max_element(exact.begin(), exact.begin() + 4));
  refuses(usage, {"score", path("run"), "--calibrate", "4"}, {"a threshold", "the first step", "got 4"});
  EXPECT_EQ(score({"--data", folder_.file("few.csv", "time,wave,ramp\n1,2,3\n").string(), "--threshold",
                   "-1000"})["anomalies"]
                .size(),
            0u);
}

// A model with learned positions reads anew from where they end.
TEST_F(Scores, StepsFromWhichAStreamBeginsAnewHaveNoContext) {
  train({"model.positions=learned", "model.relative=false", "data.length=8"});
  score({"--threshold", "-1000"});
  const auto lines = numbers_of(read_file(path("scores.csv")));
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at(4), i % 7 != 0) << i;
}

TEST_F(Scores, NameTheirTimesAndTheColumnThatStandsOut) {
  std::string text = "date,small,large\n";
  for (int i = 0; i < 600; ++i)
    text += fmt::format("2020-{:02}-{:02} {:02}:00:00,{},{}\n", 1 + i / 24 / 28, 1 + i / 24 % 28, i % 24,
                        1e-3 * std::sin(0.3 * i) + (i == 500 ? 1 : 0), 1e6 * std::sin(0.2 * i));
  folder_.file("series.csv", text);
  folder_.file("series.toml", "[data]\nkind = \"series\"\nlength = 32\n[training]\nsteps = 30\n");
  train();
  const Json json = score({"--calibrate", "400", "--quantile", "1"});
  const auto found = std::ranges::find_if(json["anomalies"], [](const Json& anomaly) {
    return anomaly["first"] <= 500 && anomaly["last"] >= 500;
  });
  ASSERT_NE(found, json["anomalies"].end()) << json.dump();
  EXPECT_EQ((*found)["column"], "small");
  EXPECT_EQ((*found)["first_time"].get<std::string>().substr(0, 11), "2020-01-21 ");
  EXPECT_THAT(succeed({"score", path("run"), "--calibrate", "400", "--quantile", "1"}).out,
              testing::AllOf(HasSubstr("2020-01-21 20:00:00"), HasSubstr("small")));
  const Strings lines = lines_of(read_file(path("scores.csv")));
  EXPECT_EQ(lines.at(0), "row,time,score,smoothed,anomaly,score_small,score_large");
  EXPECT_EQ(lines.at(501).substr(0, 24), "500,2020-01-21 20:00:00,");
  std::vector<double> cells;
  std::istringstream line(lines.at(501).substr(24));
  for (std::string cell; std::getline(line, cell, ',');) cells.push_back(std::stod(cell));
  ASSERT_EQ(cells.size(), 5u);
  EXPECT_NEAR(cells[0], cells[3] + cells[4], 1e-5 * std::abs(cells[0]));
}

TEST_F(SeriesProgram, ForecastsHaveTheTimesThatFollow) {
  train();
  const Strings forecast = {"forecast", path("run"), "--steps", "2", "--samples", "3"};
  const Strings lines = lines_of(succeed(forecast).out);
  EXPECT_TRUE(lines.at(0).starts_with("step,time,column,median,")) << lines.at(0);
  EXPECT_TRUE(lines.at(1).starts_with("1,600,wave,")) << lines.at(1);
  EXPECT_TRUE(lines.at(4).starts_with("2,601,ramp,")) << lines.at(4);
  EXPECT_EQ(json_of(succeed(joined(forecast, {"--json"})))["forecast"][3]["time"], "601");
  // Rows whose distances differ do not tell how they go on.
  std::string text = "time,wave,ramp\n";
  for (int i = 0; i < 40; ++i) text += fmt::format("{},{},{}\n", i * i, std::sin(0.3 * i), 0.01 * i);
  const Strings other = joined(forecast, {"--data", folder_.file("uneven.csv", text).string()});
  EXPECT_TRUE(succeed(other).out.starts_with("step,column,median,"));
  EXPECT_FALSE(json_of(succeed(joined(other, {"--json"})))["forecast"][0].contains("time"));
}

TEST_F(SeriesProgram, IntervalsOfOneStepHaveTheWidthsOfTheNormalDistribution) {
  train({"model.value_head=gaussian"});
  const Json json = json_of(succeed(
      {"forecast", path("run"), "--steps", "1", "--samples", "4000", "--intervals", "50,90", "--json"}));
  EXPECT_EQ(json["samples"], 4000);
  ASSERT_EQ(json["forecast"].size(), 2u);
  for (const Json& row : json["forecast"]) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    const double half = number("high_50") - number("low_50"), most = number("high_90") - number("low_90");
    EXPECT_GT(half, 0);
    EXPECT_NEAR(most / half, 1.645 / 0.6745, 0.25);
    for (const char* share : {"50", "90"})
      EXPECT_NEAR(
          (number((std::string("low_") + share).c_str()) + number((std::string("high_") + share).c_str())) /
              2,
          number("median"), 0.15 * half);
  }
}

TEST_F(SeriesProgram, ContextIsTheLastRowsThatAForecastReads) {
  train();
  const Strings lines = lines_of(read_file(path("series.csv")));
  const auto forecast = [&](const Strings& arguments) {
    return json_of(
        succeed(joined({"forecast", path("run"), "--steps", "3", "--samples", "20", "--json"}, arguments)));
  };
  const Json by_default = forecast({});
  EXPECT_EQ(by_default["context"], 31);
  EXPECT_EQ(forecast({"--context", "31"}), by_default);
  for (const std::size_t context : {1u, 17u, 240u, 600u}) {
    Json given = forecast({"--context", std::to_string(context)});
    EXPECT_EQ(given["context"], context);
    EXPECT_NE(given["forecast"], by_default["forecast"]);
    // Another file that has these rows alone.
    std::string text = lines[0] + "\n";
    for (std::size_t i = lines.size() - context; i < lines.size(); ++i) text += lines[i] + "\n";
    if (context < 3)  // too few rows to tell how their times go on
      for (Json& row : given["forecast"]) row.erase("time");
    EXPECT_EQ(forecast({"--context", "1000", "--data", folder_.file("last.csv", text).string()}), given);
  }
}

TEST_F(SeriesProgram, ForecastRefusesIntervalsAndContextsThatCannotBe) {
  train({"data.patch=4", "data.horizon=4"});
  const Strings forecast = {"forecast", path("run"), "--steps", "4", "--samples", "9"};
  for (const char* intervals : {"100", "50,100", "1000"})
    refuses(usage, joined(forecast, {"--intervals", intervals}), {"--intervals in 1 … 99"});
  refuses(usage, joined(forecast, {"--intervals", "50,99.9"}), {"whole numbers in 1 … 99", "50,99.9"});
  for (const char* intervals : {"0", "-5", "50,0"})
    refuses(usage, joined(forecast, {"--intervals", intervals}), {"--intervals", "above 0", intervals});
  const Json row = json_of(succeed(joined(forecast, {"--intervals", "1,99", "--json"})))["forecast"][0];
  EXPECT_LE(row["low_99"], row["low_1"]);
  EXPECT_LE(row["high_1"], row["high_99"]);
  for (const char* context : {"1", "3"})
    refuses(usage, joined(forecast, {"--context", context}), {"a context of at least the 4 rows", context});
  refuses(usage, joined(forecast, {"--context", "0"}), {"--context", "0"});
  for (const auto& [context, read] : {std::pair("4", 4), std::pair("30", 28)})
    EXPECT_EQ(json_of(succeed(joined(forecast, {"--context", context, "--json"})))["context"], read);
}

TEST(ClassifyProgram, AccuracyAndConfusionAreThoseOfItsRows) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  succeed(joined({"train", "classify-mnist", "--data", "digits", "--out", run, "--set", "training.steps=150",
                  "training.learning_rate=1e-2", "data.examples=400", "data.size=8", "data.levels=16"},
                 tiny));
  const Json evaluated = json_of(succeed({"evaluate", run, "--json"}));
  const Json given = json_of(succeed({"classify", run, "--json"}));
  EXPECT_EQ(given["examples"], evaluated["examples"]);
  EXPECT_EQ(given["examples"], given["labels"].size());
  std::vector<std::vector<std::int64_t>> confusion(10, std::vector<std::int64_t>(10));
  std::int64_t right = 0;
  for (const Json& row : given["labels"]) {
    const auto label = row["label"].get<std::size_t>(), most_probable = row["given"].get<std::size_t>();
    ++confusion.at(label).at(most_probable);
    right += label == most_probable;
    EXPECT_GE(row["probability"].get<double>(), 0.1 - 1e-6) << row;
    EXPECT_LE(row["probability"].get<double>(), 1 + 1e-6) << row;
  }
  EXPECT_EQ(evaluated["confusion"], Json(confusion));
  const double share = static_cast<double>(right) / static_cast<double>(given["labels"].size());
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1);
  EXPECT_NEAR(given["accuracy"].get<double>(), share, 1e-12);
  EXPECT_NEAR(evaluated["accuracy"].get<double>(), share, 1e-12);
  // The lines of the file say the same.
  succeed({"classify", run, "--out", folder / "labels.csv"});
  const auto rows = numbers_of(read_file(folder / "labels.csv"));
  ASSERT_EQ(rows.size(), given["labels"].size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = given["labels"][i];
    EXPECT_EQ((std::vector<double>{row["example"], row["label"], row["given"]}),
              std::vector<double>(rows[i].begin(), rows[i].begin() + 3));
    EXPECT_NEAR(rows[i][3], row["probability"].get<double>(), 1e-5);
  }
}

TEST_F(FieldsProgram, MidiFilesHoldThePitchesOfTheTokens) {
  const Strings common = {"generate", path("run"), "--seed", "5", "--length", "16"};
  succeed(joined(common, {"--out", path("piece.safetensors")}));
  const Tensor tokens = Safetensors::read(path("piece.safetensors")).tensor("tokens");
  ASSERT_EQ(tokens.shape(), (Shape{16, 2}));
  const auto expected = [&](std::int32_t first_pitch, double beats) {
    std::vector<std::int32_t> pitches;
    for (const std::int32_t token : tokens.span<std::int32_t>())
      pitches.push_back(token == 0 ? -1 : first_pitch + token - 1);
    return midi_file({2, pitches}, 4, beats);
  };
  const auto written = [&](const Strings& arguments) {
    succeed(joined(joined(common, arguments), {"--out", path("piece.mid")}));
    return read_file(path("piece.mid"));
  };
  EXPECT_EQ(written({}), expected(21, 80));
  EXPECT_EQ(written({"--first-pitch", "94"}), expected(94, 80));
  // A million microseconds per quarter note.
  const std::string slow = written({"--beats", "60"});
  EXPECT_EQ(slow, expected(21, 60));
  EXPECT_THAT(slow, HasSubstr("\xff\x51\x03\x0f\x42\x40"));
  // The second field has 35 values, of which the last one has to be a pitch of at most 127.
  for (const char* pitch : {"95", "127"})
    refuses(usage, joined(common, {"--first-pitch", pitch, "--out", path("new.mid")}),
            {"at most 127", pitch});
  refuses(usage, joined(common, {"--first-pitch", "128", "--out", path("new.mid")}),
          {"--first-pitch", "128"});
  refuses(usage, joined(common, {"--first-pitch", "50", "--out", path("new.safetensors")}),
          {"--first-pitch", ".safetensors"});
  for (const std::string file : {"new.safetensors", "new.png"})
    refuses(usage, joined(common, {"--beats", "90", "--out", path(file)}), {"--beats", file.substr(3)});
  EXPECT_FALSE(std::filesystem::exists(path("new.mid")));
}

TEST_F(FieldsProgram, SequencesBeginWithAPieceThatIsGiven) {
  const Strings common = {"generate", path("run"), "--temperature", "0", "--length", "5"};
  succeed({"generate", path("run"), "--seed", "3", "--length", "6", "--count", "2", "--out",
           path("begun.safetensors")});
  const Tensor begun = Safetensors::read(path("begun.safetensors")).tensor("tokens");
  const auto tokens_of = [&](const Strings& more) {
    succeed(joined(joined(common, more), {"--out", path("on.safetensors")}));
    const Tensor tokens = Safetensors::read(path("on.safetensors")).tensor("tokens");
    const auto all = tokens.span<const std::int32_t>();
    return std::vector<std::int32_t>(all.begin(), all.end());
  };
  // The first piece of the file, and what the library draws behind it.
  const std::vector<std::int32_t> three =
      tokens_of({"--prompt-file", path("begun.safetensors"), "--count", "3", "--streams", "2"});
  const auto given = begun.span<const std::int32_t>().first(12);
  Session session(Model::load(path("run")), 1);
  session.begin(0, -1, {.temperature = 0});
  session.prefill(0, given);
  std::vector<std::int32_t> expected(given.begin(), given.end());
  for (int step = 0; step < 5; ++step) {
    std::int32_t drawn[2];
    session.step(drawn);
    expected.insert(expected.end(), drawn, drawn + 2);
  }
  ASSERT_EQ(three.size(), 3 * expected.size());
  for (std::size_t i = 0; i < three.size(); ++i) EXPECT_EQ(three[i], expected[i % expected.size()]) << i;
  const Tensor offsets = Safetensors::read(path("on.safetensors")).tensor("offsets");
  EXPECT_THAT(offsets.span<const std::int64_t>(), testing::ElementsAre(0, 11, 22, 33));
  // As a MIDI file it is what `linnet data midi` makes of it.
  folder_.file("given.mid", midi_file({2, std::vector<std::int32_t>{24, 22, 24, 23, 26, -1}}, 4, 80));
  const std::vector<std::int32_t> continued = tokens_of({"--prompt-file", path("given.mid")});
  ASSERT_EQ(continued.size(), 2u * (3 + 5));
  EXPECT_EQ((std::vector<std::int32_t>(continued.begin(), continued.begin() + 6)),
            (std::vector<std::int32_t>{4, 2, 4, 3, 6, 0}));
  succeed(joined(common, {"--prompt-file", path("given.mid"), "--out", path("on.mid")}));
  refuses(failed, joined(common, {"--prompt-file", path("none.mid"), "--out", path("on.mid")}), {"none.mid"});
  write_token_file(path("wide.safetensors"), std::vector<std::int32_t>(6), std::vector<std::int64_t>{0, 2},
                   3);
  refuses(usage, joined(common, {"--prompt-file", path("wide.safetensors"), "--out", path("on.mid")}),
          {"2 fields", "wide.safetensors", "got 3"});
  refuses(usage, joined(common, {"--prompt", "1 2", "--out", path("on.mid")}), {"--prompt", "fields"});
  refuses(usage,
          {"generate", path("run"), "--prompt-file", path("given.mid"), "--length", "14", "--out",
           path("on.mid")},
          {"at most 16 steps", "3 of a prompt and 14 of --length"});
}

TEST_F(FieldsProgram, FillTakesTheValuesOfEachFieldAlone) {
  succeed(joined({"train", path("fields.toml"), "--data", path("pieces.safetensors"), "--out", path("masked"),
                  "--set", "model.objective=masked"},
                 tiny));
  const std::string filled = succeed({"fill", path("masked"), "--tokens", "7 _ 2 34 _ 3"}).out;
  EXPECT_TRUE(filled.starts_with("7 ")) << filled;
  refuses(usage, {"fill", path("masked"), "--tokens", "8 _ 2 30"}, {"0 … 7", "got 8"});
  refuses(usage, {"fill", path("masked"), "--tokens", "7 35 2 30"}, {"0 … 34", "got 35"});
  const Json hidden = json_of(
      succeed({"fill", path("masked"), "--tokens", "7 _ 2 34 _ 3", "--top", "40", "--json"}))[0]["hidden"];
  EXPECT_EQ(hidden[0]["top"].size(), 35u);
  EXPECT_EQ(hidden[1]["top"].size(), 8u);
}

}  // namespace
}  // namespace linnet
