#include <gtest/gtest.h>
#include <sys/stat.h>

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
    const Strings with_threads = {"--threads", std::to_string(threads)};
    if (resume) return joined({"train", "--resume", (folder_ / run).string()}, with_threads);
    return joined({"train", (folder_ / "copy.toml").string(), "--out", (folder_ / run).string(), "--set",
                   "training.steps=" + std::to_string(steps), "--set", "training.checkpoint_every=3", "--set",
                   "training.evaluate_every=20", "--set", "training.sample_every=0"},
                  with_threads);
  }

  /// Lines of metrics.jsonl by step and kind, without what differs between runs: times.
  static std::map<std::pair<int, bool>, Json> metrics(const fs::path& run) {
    std::map<std::pair<int, bool>, Json> rows;
    for (const std::string& line : lines_of(read_file(run / "metrics.jsonl"))) {
      Json row = parse_json(line, "metrics.jsonl");
      if (row.contains("settings")) continue;
      row.erase("tokens_per_second");
      row.erase("seconds");
      const bool evaluation = row.contains("validation_bits");
      EXPECT_TRUE(rows.try_emplace({row["step"], evaluation}, row).second) << line << " is there twice";
    }
    return rows;
  }

  /// Until the run has logged an update.
  void wait_for_updates(const Program& program, const std::string& run) const {
    const fs::path path = folder_ / run / "metrics.jsonl";
    const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
    while ((!fs::exists(path) || lines_of(read_file(path)).size() < 2) && !program.has_ended() &&
           Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void expect_as_undisturbed(const std::string& run) const { expect_same(run, "undisturbed", steps); }

  /// Both runs of so many steps have the same bits.
  void expect_same(const std::string& run, const std::string& expected_run, int steps) const {
    const std::string last = "checkpoints/" + std::to_string(steps);
    for (const std::string& file :
         {std::string("model.safetensors"), std::string("config.json"), std::string("best/model.safetensors"),
          std::string("best/evaluation.json"), last + "/model.safetensors", last + "/optimiser.safetensors"})
      EXPECT_TRUE(read_file(folder_ / run / file) == read_file(folder_ / expected_run / file)) << file;
    const auto state = [&](const std::string& of) {
      Json json = read_json(folder_ / of / last / "state.json");
      EXPECT_GT(json["run"]["seconds"].get<double>(), 0);
      json["run"].erase("seconds");
      json["xxh3"].erase("state.json");  // which covers the seconds
      return json;
    };
    EXPECT_EQ(state(run), state(expected_run));
    const auto found = metrics(folder_ / run), expected = metrics(folder_ / expected_run);
    EXPECT_EQ(found.size(), expected.size());
    EXPECT_EQ(found, expected);
    for (int step = 1; step <= steps; ++step) EXPECT_TRUE(found.contains({step, false})) << step;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_ / run))
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }

  TemporaryFolder folder_;
  Clock::duration undisturbed_time_{};
};

TEST_F(Resume, KilledAtRandomMomentsEndsInTheSameBits) {
  const int most_kills = kill_count(20);
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  // Half the time of a whole run: a few kills hit each run before it finishes, wherever it is then.
  std::uniform_real_distribution<double> delay(0,
                                               std::chrono::duration<double>(undisturbed_time_).count() / 2);
  int runs = 0, kills = 0, threads = 1;
  while (kills < most_kills) {
    const std::string run = "killed-" + std::to_string(runs++);
    bool finished = false;
    while (!finished) {
      threads = 3 - threads;
      Program program(command(run, threads, fs::exists(folder_ / run / "run.toml")));
      if (kills < most_kills) {
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

// More steps than a test waits for. The learning rate does not depend on their number.
Strings with_steps(const Strings& command, int count) {
  return joined(command,
                {"--set", "training.steps=" + std::to_string(count), "--set", "training.schedule=constant"});
}
constexpr int never_done = 100'000'000;

TEST_F(Resume, InterruptedRunSavesEndsWellAndEndsInTheSameBits) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(signal);
    const std::string run = "interrupted-" + std::to_string(signal),
                      whole = "whole-" + std::to_string(signal);
    Program program(with_steps(command(run, 2, false), never_done));
    wait_for_updates(program, run);
    program.send(signal);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_NE(ended.err.find("stopped after"), std::string::npos) << ended.err;

    // The last step that it logged is the one that it saved.
    const int stopped = metrics(folder_ / run).rbegin()->first.first;
    EXPECT_TRUE(fs::is_directory(folder_ / run / "checkpoints" / std::to_string(stopped)));
    const Ended resumed = succeed(with_steps(command(run, 1, true), stopped + 25));
    EXPECT_NE(resumed.err.find("resuming from"), std::string::npos) << resumed.err;
    succeed(with_steps(command(whole, 2, false), stopped + 25));
    expect_same(run, whole, stopped + 25);
  }
}

// The validation examples of these runs, a million, take far longer than a test looks at them.
constexpr const char* endless[] = {"--set", "training.evaluate_every=1",
                                   "--set", "training.evaluate_examples=0",
                                   "--set", "data.examples=10000000"};

// A terminal that closes sends SIGHUP twice; systemd may send SIGTERM and SIGHUP.
TEST_F(Resume, SignalsThatComeTogetherSaveACheckpoint) {
  for (const auto& [first, second] :
       {std::pair(SIGHUP, SIGHUP), std::pair(SIGTERM, SIGHUP), std::pair(SIGINT, SIGTERM)}) {
    SCOPED_TRACE(testing::Message() << first << ", " << second);
    const std::string run = "together-" + std::to_string(first) + "-" + std::to_string(second);
    Program program(with_steps(command(run, 2, false), never_done));
    wait_for_updates(program, run);
    program.send(first);
    program.send(second);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_NE(ended.err.find("stopped after"), std::string::npos) << ended.err;
  }
}

TEST_F(Resume, ASignalEndsAnEvaluation) {
  Program program(joined(command("evaluating", 2, false), {std::begin(endless), std::end(endless)}));
  wait_for_updates(program, "evaluating");
  program.send(SIGINT);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_NE(ended.err.find("within the evaluation after step 1,"), std::string::npos) << ended.err;
  EXPECT_TRUE(fs::is_directory(folder_ / "evaluating/checkpoints/1"));
}

TEST_F(Resume, GoesOnWhereNobodyReadsItsProgress) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Program program(command("unread", 2, false), {.err = pipe});
  const int reader = open(pipe.c_str(), O_RDONLY);
  ASSERT_GE(reader, 0);
  close(reader);
  EXPECT_EQ(program.wait().status, 0);
  expect_as_undisturbed("unread");
}

// A run that waits in its first line, since the pipe behind standard error is full, cannot stop by itself.
TEST_F(Resume, ASecondSignalEndsTheRunAtOnce) {
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(signal);
    const std::string run = "endless-" + std::to_string(signal), pipe = (folder_ / (run + ".pipe")).string();
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const int full = open(pipe.c_str(), O_RDWR | O_NONBLOCK);
    ASSERT_GE(full, 0);
    while (write(full, "x", 1) == 1) {
    }
    Program program(command(run, 2, false), {.err = pipe});
    const Clock::time_point latest = Clock::now() + std::chrono::seconds(60);
    while (!fs::exists(folder_ / run / "metrics.jsonl") && !program.has_ended() && Clock::now() < latest)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    program.send(signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    program.send(signal);
    const Clock::time_point start = Clock::now();
    EXPECT_EQ(program.wait().signal, signal);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
    close(full);
  }
}

TEST_F(Resume, OneProgramAtATimeTrainsInAFolder) {
  Program first(joined(command("shared", 2, false), {std::begin(endless), std::end(endless)}));
  wait_for_updates(first, "shared");
  const std::string state = read_file(folder_ / "shared/checkpoints/0/state.json");
  const Ended second = run_linnet(command("shared", 1, true));
  EXPECT_EQ(second.status, 1) << second.err;
  for (const std::string& words :
       {(folder_ / "shared").string(), "process " + std::to_string(first.process())})
    EXPECT_NE(second.err.find(words), std::string::npos) << second.err;
  EXPECT_EQ(read_file(folder_ / "shared/checkpoints/0/state.json"), state);
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().signal, SIGKILL);
  succeed(joined(command("shared", 1, true),
                 {"--set", "training.evaluate_examples=4", "--set", "training.steps=3"}));
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
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("training.learning_rate = 0.001"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("got 0.5"), std::string::npos) << ended.err;
  expect_as_undisturbed("other");
}

}  // namespace
}  // namespace linnet
