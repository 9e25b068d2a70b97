// linnet train on several processes: the bits of one, stopped, killed and resumed on other numbers of them.
// The environment variable LINNET_KILLS is the number of kills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <utility>

#include "apps/program.h"
#include "apps/refusal.h"
#include "base/sanitizers.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

const char* const configuration =
    "[data]\nkind = \"digits\"\nsize = 8\nlevels = 8\nexamples = 100\n"
    "[model]\nlayers = 2\nheads = 2\nwidth = 32\nfeed_forward = 64\ndropout = 0.1\n"
    "[training]\nsteps = 400\nbatch = 2\naccumulate = 5\nsample_every = 200\nevaluate_every = 75\n"
    "evaluate_examples = 9\ncheckpoint_every = 10\nlog_every = 1\n";

Program::Limits on_ranks(int count) {
  Program::Limits limits;
  limits.time = std::chrono::seconds(240);
  if (count > 1) limits.launcher = {LINNET_MPIRUN, LINNET_RANKS_FLAG, std::to_string(count)};
  return limits;
}

/// The same where mpirun waits for so many seconds before it passes SIGTERM on, and again before it kills.
Program::Limits with_time_to_save(int count) {
  Program::Limits limits = on_ranks(count);
  limits.launcher.insert(limits.launcher.begin() + 1, {"--mca", "odls_base_sigkill_timeout", "3"});
  return limits;
}

/// Processes that this one has started and that still run.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  std::ifstream children("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  for (pid_t child; children >> child;) found.push_back(child);
  return found;
}

class TrainingRanks : public testing::Test {
 protected:
  TrainingRanks() {
    if (!fs::exists(alone())) train_alone();
  }
  static void TearDownTestSuite() { fs::remove_all(shared()); }

  /// What one process makes of the configuration, once for all tests.
  static void train_alone() {
    fs::create_directories(shared());
    write_file_atomically(shared() / "digits.toml", configuration);
    const Clock::time_point start = Clock::now();
    succeed({"train", (shared() / "digits.toml").string(), "--out", alone().string(), "--threads", "1"});
    time_ = Clock::now() - start;
  }

  static fs::path shared() {
    return fs::temp_directory_path() / ("linnet-training-ranks-" + std::to_string(getpid()));
  }
  static fs::path alone() { return shared() / "alone"; }

  Strings begin(const std::string& run) const {
    return {"train", (shared() / "digits.toml").string(), "--out", (folder_ / run).string(), "--threads",
            "1"};
  }
  Strings resume(const std::string& run) const {
    return {"train", "--resume", (folder_ / run).string(), "--threads", "1"};
  }
  /// The one or the other, as what a killed run has left wants it.
  Strings go_on(const std::string& run) const {
    return fs::exists(folder_ / run / "run.toml") ? resume(run) : begin(run);
  }

  std::size_t metrics_lines(const std::string& run) const {
    const fs::path path = folder_ / run / "metrics.jsonl";
    return fs::exists(path) ? lines_of(read_file(path)).size() : 0;
  }

  void wait_for_lines(const Program& program, const std::string& run, std::size_t lines) const {
    const Clock::time_point end = Clock::now() + std::chrono::seconds(240);
    while (metrics_lines(run) < lines && !program.has_ended() && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void expect_as_alone(const std::string& run) const {
    for (const char* file :
         {"model.safetensors", "best/model.safetensors", "best/evaluation.json",
          "checkpoints/400/model.safetensors", "checkpoints/400/optimiser.safetensors", "samples/400.png"})
      EXPECT_TRUE(read_file(folder_ / run / file) == read_file(alone() / file)) << file;
    const auto metrics = [](const fs::path& of) {
      std::string all;
      for (const std::string& line : lines_of(read_file(of / "metrics.jsonl"))) {
        Json row = parse_json(line, "metrics.jsonl");
        row.erase("tokens_per_second");
        row.erase("seconds");
        all += row.dump() + "\n";
      }
      return all;
    };
    EXPECT_EQ(metrics(folder_ / run), metrics(alone()));
  }

  static std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }

  static inline std::chrono::duration<double> time_ = {};
  TemporaryFolder folder_;
};

TEST_F(TrainingRanks, EndInTheBitsOfOneProcessAndSpeakOnce) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const std::string run = "ranks" + std::to_string(ranks);
    const Ended ended = succeed(joined(begin(run), {"--json"}), on_ranks(ranks));
    expect_as_alone(run);
    EXPECT_EQ(parse_json(ended.out, "standard output")["step"], 400);
    EXPECT_EQ(count(ended.err, "finished after 400 steps"), 1u) << ended.err;
    EXPECT_EQ(count(ended.err, "training on "), 1u) << ended.err;
  }
}

TEST_F(TrainingRanks, RefuseWithOneSentenceAndItsStatus) {
  const auto refuse = [&](int status, const Strings& arguments, const std::string& words) {
    const Ended ended = run_linnet(arguments, on_ranks(3));
    EXPECT_EQ(ended.status, status) << ended.err;
    EXPECT_EQ(count(ended.err, "linnet: ") + count(ended.err, "linnet train: "), 1u) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(words));
  };
  refuse(usage, joined(begin("many"), {"--set", "training.accumulate=2"}), "at most training.accumulate = 2");
  refuse(usage, joined(begin("unknown"), {"--bogus"}), "--bogus");
  refuse(usage, joined(begin("unknown"), {"--set", "training.bogus=1"}), "training.bogus");
  refuse(usage, joined(begin("missing"), {"--data", "/nowhere.txt"}), "/nowhere.txt");
  fs::create_directory(folder_ / "taken");
  folder_.file("taken/thesis.txt", "precious");
  refuse(failed, begin("taken"), "new or empty folder");
  for (const char* run : {"many", "unknown", "missing"}) EXPECT_FALSE(fs::exists(folder_ / run));

  Strings others = begin("differ");
  Program::Limits limits = on_ranks(1);
  limits.launcher = joined(on_ranks(2).launcher, {LINNET_PROGRAM});
  limits.launcher =
      joined(limits.launcher, joined(others, {"--set", "training.seed=3", ":", LINNET_RANKS_FLAG, "1"}));
  const Ended ended = run_linnet(others, limits);
  EXPECT_EQ(ended.status, usage) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("training.seed = 3 as rank 0, got 1 on rank 2"));
  EXPECT_FALSE(fs::exists(folder_ / "differ"));

  limits.launcher = joined(on_ranks(1).launcher, {LINNET_MPIRUN, LINNET_RANKS_FLAG, "1", LINNET_PROGRAM});
  limits.launcher = joined(joined(limits.launcher, others), {":", LINNET_RANKS_FLAG, "1"});
  const Ended resumed = run_linnet({"train", "--resume", alone().string()}, limits);
  EXPECT_EQ(resumed.status, usage) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resume = false as rank 0, got true on rank 1"));
}

TEST_F(TrainingRanks, EndWithOneSentenceWhereTheFirstCannotSave) {
  succeed(joined(begin("full"), {"--set", "training.steps=10"}), on_ranks(2));
  fs::create_directory(folder_ / "full/checkpoints/20");
  folder_.file("full/checkpoints/20/thesis.txt", "precious");
  const Ended ended = run_linnet(joined(resume("full"), {"--set", "training.steps=400"}), on_ranks(3));
  EXPECT_EQ(ended.status, failed) << ended.err;
  EXPECT_EQ(count(ended.err, "linnet: "), 1u) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("thesis.txt"));
}

TEST_F(TrainingRanks, EndWithOneSentenceWhereTheDiskIsFull) {
#ifdef LINNET_THREAD_SANITIZER
  GTEST_SKIP() << "the thread sanitizer has files of its own, which the limit would break";
#endif
  // Of the files of this run only those of a checkpoint are larger than the second limit.
  for (const auto& [file, limit] : {std::pair("metrics.jsonl", rlim_t{512}), {"checkpoints", 70'000}}) {
    SCOPED_TRACE(file);
    const std::string run = std::string("full of ") + file;
    Program program(begin(run), on_ranks(3));
    wait_for_lines(program, run, 25);
    const rlimit full = {limit, limit};  // from now on: MPI has files of its own
    for (const pid_t process : children_of(program.process()))
      ASSERT_EQ(prlimit(process, RLIMIT_FSIZE, &full, nullptr), 0);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.status, failed) << ended.signal;
    EXPECT_EQ(count(ended.err, "linnet: "), 1u) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("cannot write " + (folder_ / run / file).string()));
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_ / run))
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    succeed(resume(run), on_ranks(2));
    expect_as_alone(run);
  }
}

TEST_F(TrainingRanks, StopTogetherWhereOneGetsSigtermAndOthersResume) {
  for (const int ranks : {4, 2}) {
    const std::size_t lines = metrics_lines("stopped");
    Program program(go_on("stopped"), on_ranks(ranks));
    wait_for_lines(program, "stopped", lines + 4);
    const std::vector<pid_t> processes = children_of(program.process());
    ASSERT_EQ(processes.size(), static_cast<std::size_t>(ranks));
    kill(processes.back(), SIGTERM);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(count(ended.err, "linnet: "), 0u) << ended.err;
    EXPECT_EQ(count(ended.err, "stopped after "), 1u) << ended.err;
  }
  succeed(resume("stopped"), on_ranks(3));
  expect_as_alone("stopped");
}

TEST_F(TrainingRanks, SaveWhereMpirunGetsSigterm) {
  Program program(joined(begin("stopped"), {"--set", "training.steps=1000000"}), with_time_to_save(3));
  wait_for_lines(program, "stopped", 4);
  program.send(SIGTERM);
  const Ended ended = program.wait();
  EXPECT_EQ(count(ended.err, "linnet: "), 0u) << ended.err;
  ASSERT_EQ(count(ended.err, "stopped after "), 1u) << ended.err;
  const std::size_t at = ended.err.find("stopped after ") + 14;
  const std::string step = ended.err.substr(at, ended.err.find(' ', at) - at);
  EXPECT_TRUE(fs::exists(folder_ / "stopped/checkpoints" / step / "state.json")) << step;
  EXPECT_THAT(succeed(joined(resume("stopped"), {"--set", "training.steps=" + step}), on_ranks(2)).err,
              HasSubstr("finished after " + step + " steps"));
}

TEST_F(TrainingRanks, OneOfThemKilledEndsAllAndTheRunResumes) {
  Program program(begin("killed"), on_ranks(3));
  wait_for_lines(program, "killed", 15);
  const std::vector<pid_t> processes = children_of(program.process());
  ASSERT_EQ(processes.size(), 3u);
  const Clock::time_point killed = Clock::now();
  kill(processes[1], SIGKILL);
  const Ended ended = program.wait();
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(30));
  EXPECT_NE(ended.status, 0);
  EXPECT_EQ(count(ended.err, "linnet: "), 1u) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("has died: the last good checkpoint is " +
                                   (folder_ / "killed" / "checkpoints").string()));
  succeed(resume("killed"), on_ranks(2));
  expect_as_alone("killed");
}

TEST_F(TrainingRanks, KilledAtAnyMomentTheyResumeToTheSameBits) {
  std::mt19937 random(std::random_device{}());
  const int kills = kill_count(3);
  int i = 0, killed = 0, resumed = 0;
  const auto share = [&] { return std::uniform_real_distribution<double>()(random); };
  // Some more where none of the kills hit a run that had begun.
  for (; (i < kills || (resumed == 0 && i < kills + 10)) && !HasFailure(); ++i) {
    const std::string run = "killed" + std::to_string(i);
    SCOPED_TRACE(run);
    const int ranks = 2 + i % 3;
    bool was_killed = false;
    {
      Program program(begin(run), on_ranks(ranks));
      std::this_thread::sleep_for((time_ + std::chrono::seconds(1)) * ((i % kills + share()) / kills));
      const std::vector<pid_t> processes = children_of(program.process());
      if (!processes.empty()) was_killed = kill(processes[random() % processes.size()], SIGKILL) == 0;
      const Clock::time_point start = Clock::now();
      const Ended ended = program.wait();
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
      was_killed = was_killed && ended.status != 0;  // and had not ended by itself
    }
    killed += was_killed;
    resumed += was_killed && fs::exists(folder_ / run / "run.toml");
    succeed(go_on(run), on_ranks(2 + (i + 1) % 3));
    expect_as_alone(run);
  }
  EXPECT_GT(resumed, 0);
  std::cout << killed << " of " << i << " killed, " << resumed << " resumed\n";
}

}  // namespace
}  // namespace linnet
