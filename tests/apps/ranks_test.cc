// What training on several machines would take: linnet inspect --ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/refusal.h"
#include "io/json.h"

namespace linnet {
namespace {

using testing::HasSubstr;

Json json_of(const Ended& ended) { return parse_json(ended.out, "standard output"); }

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
  EXPECT_EQ(times_of({"inspect", "series", "--set", "model.columns=7"})["source"], "estimated");
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
  refuses(usage, {"inspect", "paper-mnist", "--ranks", "0"}, {"--ranks", "0"});
  refuses(usage, {"inspect", "paper-mnist", "--bandwidth", "10"}, {"--bandwidth", "--ranks"});
}

TEST(Inspect, TakesConfigurations) {
  EXPECT_EQ(json_of(succeed({"inspect", "paper-mnist", "--json"}))["family"], "linear");
  const Strings softmax = joined(tiny, {"attention.family=softmax"});
  EXPECT_EQ(json_of(succeed(joined({"inspect", "text", "--json"}, softmax)))["family"], "softmax");
  refuses(usage, {"inspect", "paper-mnst"}, {"paper-mnst", "did you mean paper-mnist?"});
  const std::string model = LINNET_SOURCE_FOLDER "/models/digits";
  refuses(usage, {"inspect", model, "--set", "model.width=32"}, {"--set", model});
  refuses(usage, {"inspect", model, "--ranks", "2", "--set", "model.width=32"}, {"training.", "model.width"});
}

}  // namespace
}  // namespace linnet
