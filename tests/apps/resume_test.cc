#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>

#include "apps/program.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int steps = 75;

/// Runs of one configuration that have to end in the same bits.
class Resume : public testing::Test {
 protected:
  Resume() {
    folder_.file("copy.toml", tiny_copy);
    const Clock::time_point start = Clock::now();
    succeed(command("undisturbed", 2, false));
    undisturbed_time_ = Clock::now() - start;
  }

  Strings command(const std::string& run, int threads, bool resume) const {
    Strings words = {
        "train",     (folder_ / "copy.toml").string(), "--out", (folder_ / run).string(),
        "--threads", std::to_string(threads),          "--set", "training.steps=" + std::to_string(steps),
        "--set",     "training.checkpoint_every=3",    "--set", "training.evaluate_every=20",
        "--set",     "training.sample_every=0"};
    if (resume) words.push_back("--resume");
    return words;
  }

  /// Lines of metrics.jsonl by step and kind, without what differs between runs: the rate.
  static std::map<std::pair<int, bool>, Json> metrics(const fs::path& run) {
    std::map<std::pair<int, bool>, Json> rows;
    for (const std::string& line : lines_of(read_file(run / "metrics.jsonl"))) {
      Json row = parse_json(line, "metrics.jsonl");
      row.erase("tokens_per_second");
      const bool evaluation = row.contains("validation_bits");
      EXPECT_TRUE(rows.try_emplace({row["step"], evaluation}, row).second) << line << " is there twice";
    }
    return rows;
  }

  void expect_as_undisturbed(const std::string& run) const {
    const std::string last = "checkpoints/" + std::to_string(steps);
    for (const std::string& file :
         {std::string("model.safetensors"), std::string("config.json"), last + "/model.safetensors",
          last + "/optimiser.safetensors", last + "/state.json"})
      EXPECT_TRUE(read_file(folder_ / run / file) == read_file(folder_ / "undisturbed" / file)) << file;
    const auto found = metrics(folder_ / run), expected = metrics(folder_ / "undisturbed");
    EXPECT_EQ(found.size(), expected.size());
    EXPECT_EQ(found, expected);
    for (int step = 1; step <= steps; ++step) EXPECT_TRUE(found.contains({step, false})) << step;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_ / run))
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }

  TemporaryFolder folder_;
  Clock::duration undisturbed_time_{};
};

TEST_F(Resume, KilledAtTwentyRandomMomentsEndsInTheSameBits) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  // Half the time of a whole run: a few kills hit each run before it finishes, wherever it is then.
  std::uniform_real_distribution<double> delay(0,
                                               std::chrono::duration<double>(undisturbed_time_).count() / 2);
  int runs = 0, kills = 0, threads = 1;
  while (kills < 20) {
    const std::string run = "killed-" + std::to_string(runs++);
    bool finished = false;
    while (!finished) {
      threads = 3 - threads;
      Program program(command(run, threads, fs::exists(folder_ / run)));
      if (kills < 20) {
        std::this_thread::sleep_for(std::chrono::duration<double>(delay(random)));
        program.send(SIGKILL);
      }
      const Ended ended = program.wait();
      finished = ended.signal == 0;
      // Kills before the first checkpoint are easy: they are not counted.
      if (!finished && fs::exists(folder_ / run / "checkpoints")) ++kills;
      ASSERT_EQ(ended.signal == 0 ? ended.status : 0, 0) << ended.err;
    }
    expect_as_undisturbed(run);
  }
}

TEST_F(Resume, InterruptedRunSavesEndsWellAndEndsInTheSameBits) {
  Program program(command("interrupted", 2, false));
  const fs::path metrics_file = folder_ / "interrupted" / "metrics.jsonl";
  const Clock::time_point start = Clock::now();
  while ((!fs::exists(metrics_file) || fs::file_size(metrics_file) == 0) &&
         Clock::now() - start < std::chrono::seconds(600))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  program.send(SIGINT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.err.find("stopped after"), std::string::npos) << ended.err;

  // The last step that it logged is the one that it saved.
  const int stopped = metrics(folder_ / "interrupted").rbegin()->first.first;
  EXPECT_LT(stopped, steps);
  EXPECT_TRUE(fs::is_directory(folder_ / "interrupted" / "checkpoints" / std::to_string(stopped)));
  const Ended resumed = succeed(command("interrupted", 1, true));
  EXPECT_NE(resumed.err.find("resuming from"), std::string::npos) << resumed.err;
  expect_as_undisturbed("interrupted");
}

TEST_F(Resume, FinishedRunStaysAsItIs) {
  fs::copy(folder_ / "undisturbed", folder_ / "finished", fs::copy_options::recursive);
  succeed(command("finished", 2, true));
  expect_as_undisturbed("finished");
}

TEST_F(Resume, RunKilledAfterItsLastCheckpointGetsItsModel) {
  fs::copy(folder_ / "undisturbed", folder_ / "late", fs::copy_options::recursive);
  fs::remove(folder_ / "late/model.safetensors");
  succeed(command("late", 1, true));
  expect_as_undisturbed("late");
}

TEST_F(Resume, RefusesWhatWouldLeadElsewhere) {
  fs::copy(folder_ / "undisturbed", folder_ / "other", fs::copy_options::recursive);
  const Ended ended = run_linnet(joined(command("other", 2, true), {"--set", "training.learning_rate=0.5"}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.err.find("training.learning_rate = 0.001"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("got 0.5"), std::string::npos) << ended.err;
  expect_as_undisturbed("other");
}

}  // namespace
}  // namespace linnet
