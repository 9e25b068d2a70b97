// What training on several machines would take: linnet inspect --ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/refusal.h"
#include "io/json.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::HasSubstr;

const Strings tiny = {"--set", "model.layers=1", "model.width=16", "model.heads=2", "model.feed_forward=32"};

TEST(InspectRanks, HasARowForEveryNumberOfRanksAndBandwidth) {
  const Json rows = json_of(succeed(
      {"inspect", "paper-mnist", "--ranks", "1,3:12", "--bandwidth", "1,2.5", "--rate", "6400", "--json"}));
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0]["ranks"], 1);
  EXPECT_EQ(rows[7]["ranks"], 12);
  EXPECT_EQ(rows[7]["bandwidth_gbits"], 2.5);
  EXPECT_DOUBLE_EQ(rows[0]["tokens_per_second"], 6400);
  EXPECT_EQ(rows[0]["efficiency"], 1);
  EXPECT_EQ(rows[0]["weak_scaling"], false);
  EXPECT_EQ(rows[7]["weak_scaling"], true);
  EXPECT_EQ(rows[7]["tokens_per_update"], 12 * 7840);
  const double parameters = json_of(succeed({"inspect", "paper-mnist", "--json"}))["parameters"];
  EXPECT_DOUBLE_EQ(rows[7]["bytes_sent"], 8 * parameters * 11 / 12);
}

TEST(InspectRanks, EveryMessageTakesItsLatency) {
  const auto rows_of = [](const Strings& more) {
    return json_of(succeed(joined({"inspect", "paper-mnist", "--rate", "6400", "--json"}, more)));
  };
  struct Case {
    Strings ranks;
    double messages;
  };
  // There and back for every doubling of the groups and of the stretches; with stretches also a message in
  // each direction for every layer and every doubling.
  for (const Case& expected :
       std::vector<Case>{{{"--ranks", "1"}, 0},
                         {{"--ranks", "2"}, 2},
                         {{"--ranks", "3"}, 4},
                         {{"--ranks", "64"}, 12},
                         {{"--ranks", "4", "--sequence-ranks", "2"}, 2 + 2 + 2 * 8},
                         {{"--ranks", "8", "--sequence-ranks", "4"}, 2 + 4 + 2 * 8 * 2}}) {
    SCOPED_TRACE(testing::PrintToString(expected.ranks));
    const Json none = rows_of(joined(expected.ranks, {"--latency", "0"}))[0],
               some = rows_of(joined(expected.ranks, {"--latency", "1000"}))[0],
               usual = rows_of(expected.ranks)[0];
    EXPECT_EQ(some["latency_microseconds"], 1000);
    EXPECT_EQ(usual["latency_microseconds"], 50);
    for (const char* key : {"exchange_seconds", "update_seconds"}) {
      const auto seconds = [&](const Json& row) { return row[key].get<double>(); };
      EXPECT_NEAR(seconds(some) - seconds(none), 1e-3 * expected.messages, 1e-9) << key;
      EXPECT_NEAR(seconds(usual) - seconds(none), 50e-6 * expected.messages, 1e-9) << key;
    }
    for (const char* key : {"bytes_sent", "work_seconds", "hidden_seconds", "memory_bytes"})
      EXPECT_EQ(some[key], none[key]) << key;
  }
  EXPECT_THAT(succeed({"inspect", "paper-mnist", "--rate", "6400", "--ranks", "2", "--latency", "7"}).out,
              HasSubstr("with 7 µs a message"));
}

TEST(InspectRanks, SaysInTheTableWhatIsAssumed) {
  const Strings command = {"inspect", "paper-mnist", "--rate", "6400", "--set", "training.accumulate=4"};
  const std::string more = succeed(joined(command, {"--ranks", "8"})).out;
  EXPECT_THAT(more, HasSubstr("computed and not measured"));
  EXPECT_THAT(more, HasSubstr("weak scaling"));
  const std::string divided = succeed(joined(command, {"--ranks", "8", "--sequence-ranks", "2"})).out;
  EXPECT_THAT(divided, HasSubstr("divided among 2 ranks"));
  EXPECT_THAT(divided, testing::Not(HasSubstr("weak scaling")));
}

TEST(InspectRanks, MeasuresThisMachineAndEstimatesWhatItCannotMeasure) {
  const auto times_of = [](const Strings& command) {
    const Json times =
        json_of(succeed(joined(joined(command, {"--ranks", "2", "--json"}), tiny)))[0]["times"];
    EXPECT_GT(times["forward_seconds"], 0);
    EXPECT_GT(times["backward_seconds"], 0);
    return times;
  };
  const Json tokens = times_of({"inspect", "text", "--threads", "1"});
  EXPECT_EQ(tokens["source"], "measured");
  EXPECT_GT(tokens["update_seconds"], 0);
  EXPECT_EQ(times_of({"inspect", "series"})["source"], "estimated");
}

TEST(InspectRanks, TakesTheTrainingOfAModelsFolder) {
  const std::string model = LINNET_SOURCE_FOLDER "/models/digits";
  const Json row = json_of(succeed(
      {"inspect", model, "--ranks", "4", "--rate", "1000", "--set", "training.accumulate=9", "--json"}))[0];
  EXPECT_EQ(row["passes"], 9);
  EXPECT_EQ(row["passes_per_rank"], 3);
}

TEST(InspectRanks, RefusesWhatCannotBeDivided) {
  const auto refuses_ranks = [](const Strings& more, const Strings& words) {
    refuses(usage, joined({"inspect", "paper-mnist", "--ranks", "6"}, more), words);
  };
  refuses_ranks({"--sequence-ranks", "4"}, {"6 ranks", "4"});
  refuses_ranks({"--sequence-ranks", "3"}, {"model.length = 784", "3"});
  refuses_ranks({"--sequence-ranks", "2", "--set", "attention.family=softmax"}, {"linear", "softmax"});
  refuses_ranks({"--bandwidth", "1,fast"}, {"--bandwidth", "fast"});
  refuses_ranks({"--bandwidth", "0"}, {"--bandwidth"});
  refuses_ranks({"--latency", "-1"}, {"--latency", "-1"});
  refuses(usage, {"inspect", "paper-mnist", "--ranks", "0"}, {"--ranks", "0"});
  refuses(usage, {"inspect", "paper-mnist", "--bandwidth", "10"}, {"--bandwidth", "--ranks"});
  refuses(usage, {"inspect", "paper-mnist", "--latency", "10"}, {"--latency", "--ranks"});
}

TEST(Inspect, ConfigurationsHaveTheParametersThatTheirRunsHave) {
  const TemporaryFolder folder;
  std::string text = "time,a,b\n";
  for (int i = 0; i < 400; ++i)
    text += std::to_string(i) + "," + std::to_string(i % 7) + "," + std::to_string(i % 5) + "\n";
  const std::string series = folder.file("series.csv", text).string(), run = (folder / "run").string();
  struct Case {
    std::string config, data;
    Strings settings, more;  ///< more: what the data tell a run alone
  };
  const Strings small = {"data.split=0.6,0.8", "data.length=8", "data.horizon=6", "data.patch=4"};
  for (const Case& one :
       std::vector<Case>{{"series", series, small, {}},
                         {"anomalies", series, joined(small, {"data.columns=b,a"}), {}},
                         {"anomalies", series, joined(small, {"data.time=time"}), {"model.columns=8"}},
                         {"reverse-text", "reverse", {"data.examples=50"}, {}}}) {
    SCOPED_TRACE(one.config);
    const Strings settings = joined(tiny, one.settings);
    succeed(joined({"train", one.config, "--data", one.data, "--out", run},
                   joined(settings, {"training.steps=0", "training.evaluate_examples=1"})));
    EXPECT_EQ(
        json_of(succeed(joined({"inspect", one.config, "--json"}, joined(settings, one.more))))["parameters"],
        json_of(succeed({"inspect", run, "--json"}))["parameters"]);
    std::filesystem::remove_all(run);
  }
}

TEST(Inspect, TakesConfigurations) {
  EXPECT_EQ(json_of(succeed({"inspect", "paper-mnist", "--json"}))["family"], "linear");
  const Strings softmax = joined(tiny, {"attention.family=softmax"});
  EXPECT_EQ(json_of(succeed(
                joined({"inspect", "text", "--json"}, joined(softmax, {"attention.decay=none"}))))["family"],
            "softmax");
  refuses(usage, {"inspect", "paper-mnst"}, {"paper-mnst", "did you mean paper-mnist?"});
  const std::string model = LINNET_SOURCE_FOLDER "/models/digits";
  refuses(usage, {"inspect", model, "--set", "model.width=32"}, {"--set", model});
  refuses(usage, {"inspect", model, "--ranks", "2", "--set", "model.width=32"}, {"training.", "model.width"});
}

}  // namespace
}  // namespace linnet
