// Commands that write files, killed at moments spread over their whole run: each of their outputs is absent
// or whole, and the same command then does its work. The environment variable LINNET_KILLS is the number of
// kills of each command.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <random>

#include "apps/program.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// Path below `folder` and bytes of every file; folders that hold nothing have no bytes.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> result;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    if (entry.is_regular_file()) result[name] = read_file(entry.path());
    if (entry.is_directory() && fs::is_empty(entry.path())) result[name + "/"];
  }
  return result;
}

/// How often more a test tries where none of its kills came in time, on a machine that is faster at times.
constexpr int more_kills = 40;

class Killed : public testing::Test {
 protected:
  Killed() : seed_(std::random_device()()), random_(seed_) {}

  fs::path in(const std::string& name) const { return folder_ / name; }

  /// Time that the command takes to its end. What it writes into a new folder of that name stays.
  Seconds undisturbed(const std::string& name, const std::function<Strings(const fs::path&)>& command) {
    TinyModels::get();  // before the clock starts
    fs::create_directories(in(name));
    const Clock::time_point start = Clock::now();
    succeed(command(in(name)));
    return Clock::now() - start;
  }

  double random_share() { return std::uniform_real_distribution<double>()(random_); }

  /// Kills the program. False where it had ended by itself.
  static bool kill_now(Program& program) {
    program.send(SIGKILL);
    const Ended ended = program.wait();
    EXPECT_TRUE(ended.signal == SIGKILL || ended.status == 0) << ended.err;
    return ended.signal == SIGKILL;
  }

  static bool kill_after(Seconds time, const Strings& arguments) {
    Program program(arguments);
    std::this_thread::sleep_for(time);
    return kill_now(program);
  }

  /// Up to five milliseconds after something is added to the folder.
  bool kill_while_writing(const Strings& arguments, const fs::path& folder) {
    const auto entries = [](const fs::path& of) {
      return std::distance(fs::directory_iterator(of), fs::directory_iterator());
    };
    const auto before = entries(folder);
    Program program(arguments);
    const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
    while (entries(folder) == before && !program.has_ended() && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::this_thread::sleep_for(Seconds(0.005 * random_share()));
    return kill_now(program);
  }

  /// Kills a command that leaves `outputs`, files or folders, in the folder that it is given, and has it run
  /// again. `replaces`: whether it writes over files that are there, which then stay as they were or are
  /// replaced; every third time there are some.
  void expect_nothing_or_all(const std::string& name, const Strings& outputs, bool replaces,
                             const std::function<Strings(const fs::path&)>& command) {
    SCOPED_TRACE(name + ", seed " + std::to_string(seed_));
    const Seconds time = undisturbed(name, command);
    const auto expected = files_of(in(name));
    const int kills = kill_count(8);
    int i = 0, killed = 0, left_temporary = 0, left_all = 0;
    for (; (i < kills || (killed == 0 && i < kills + more_kills)) && !HasFailure(); ++i) {
      const fs::path folder = in(name + "-" + std::to_string(i));
      SCOPED_TRACE(folder);
      fs::create_directories(folder);
      const bool old = replaces && i % 3 == 2;
      const std::string old_bytes = "what another program wrote";
      for (const std::string& output : outputs)
        if (old) folder_.file((folder / output).string(), old_bytes);
      killed += i % 2 == 0 ? kill_after(time * ((i % kills + random_share()) / kills), command(folder))
                           : kill_while_writing(command(folder), folder);

      int there = 0, written = 0, temporary = 0;
      for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        temporary += is_temporary(entry);
      for (const std::string& output : outputs) there += fs::exists(folder / output);
      EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), there + temporary);
      for (const auto& [file, bytes] : files_of(folder)) {
        if (file.starts_with('.') || (old && bytes == old_bytes)) continue;
        EXPECT_TRUE(expected.contains(file) && expected.at(file) == bytes) << file << " is not whole";
        ++written;
      }
      for (const auto& [file, bytes] : expected) {
        const std::string output = file.substr(0, file.find('/'));
        EXPECT_EQ(fs::exists(folder / file), fs::exists(folder / output)) << file << " is missing";
      }
      left_temporary += temporary > 0;
      left_all += written == static_cast<int>(expected.size());
      EXPECT_TRUE(!old || there == static_cast<int>(outputs.size())) << "a file that was there is gone";

      if (there == 0 || replaces) {
        succeed(command(folder));
        EXPECT_TRUE(files_of(folder) == expected) << "after another run";
      }
      fs::remove_all(folder);
    }
    EXPECT_GT(killed, 0);
    std::cout << name << ": seed " << seed_ << ", " << killed << " of " << i << " killed, " << left_temporary
              << " left temporary files, " << left_all << " left every output\n";
  }

  TemporaryFolder folder_;
  unsigned seed_;
  std::mt19937 random_;
};

TEST_F(Killed, ConvertLeavesAWholeModelOrNothing) {
  for (const std::string weights : {"bf16", "int8"})
    expect_nothing_or_all("convert-" + weights, {"model"}, false, [&](const fs::path& folder) -> Strings {
      return {"convert", TinyModels::get().digits(), "--weights", weights, "--out", folder / "model"};
    });
}

TEST_F(Killed, GenerateLeavesWholePicturesTextsAndStatesOrNothing) {
  const TinyModels& tiny = TinyModels::get();
  expect_nothing_or_all("pictures", {"drawn.png"}, true, [&](const fs::path& folder) -> Strings {
    return {"generate", tiny.digits(), "--count", "64", "--threads", "1", "--out", folder / "drawn.png"};
  });
  expect_nothing_or_all("text", {"drawn.txt"}, true, [&](const fs::path& folder) -> Strings {
    return {"generate", tiny.text(), "--length", "300", "--threads", "1", "--out", folder / "drawn.txt"};
  });
  expect_nothing_or_all("states", {"drawn.txt", "states"}, true, [&](const fs::path& folder) -> Strings {
    return {"generate",      tiny.text(),
            "--count",       "3",
            "--length",      "300",
            "--steps",       "200",
            "--out",         folder / "drawn.txt",
            "--threads",     "1",
            "--save-states", folder / "states"};
  });
}

TEST_F(Killed, AttendLeavesAWholeFileOrNothing) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(2 * 400 * 2 * 16);
  for (float& number : numbers) number = normal(random);
  std::vector<NamedTensor> tensors;
  for (const char* name : {"q", "k", "v", "grad_out"})
    tensors.push_back({name, DType::f32, {2, 400, 2, 16}, numbers.data()});
  write_safetensors(in("in.safetensors"), tensors, {});
  expect_nothing_or_all("attend", {"out.safetensors"}, true, [&](const fs::path& folder) -> Strings {
    return {"attend", in("in.safetensors"),      "--mask", "causal", "--gradients",
            "--out",  folder / "out.safetensors"};
  });
}

TEST_F(Killed, DataLeavesAllFilesOrNothing) {
  expect_nothing_or_all("digits", {"digits"}, false, [](const fs::path& folder) -> Strings {
    return {"data", "digits", "--size", "12", "--count", "300", "--test", "50", "--out", folder / "digits"};
  });
  expect_nothing_or_all("copy", {"copy.safetensors"}, true, [](const fs::path& folder) -> Strings {
    return {"data", "copy", "--length", "64", "--count", "2000", "--out", folder / "copy.safetensors"};
  });
}

/// Files that decide how a run goes on, and its results; times differ between runs.
std::map<std::string, std::string> results_of(const fs::path& run) {
  std::map<std::string, std::string> result;
  for (const auto& [name, bytes] : files_of(run))
    if (name.ends_with(".safetensors") || name.ends_with("config.json") || name.ends_with(".png"))
      result[name] = bytes;
  return result;
}

TEST_F(Killed, TrainLeavesARunThatEndsInTheSameBits) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  const auto command = [&](const fs::path& folder) -> Strings {
    return {"train", TinyModels::get().config("digits"), "--threads", "1", "--out", folder / "run"};
  };
  const Seconds time = undisturbed("train", command);
  const auto expected = results_of(in("train") / "run");
  const int kills = kill_count(8);
  int i = 0, killed = 0, resumed = 0, had_ended = 0;
  for (; (i < kills || (resumed == 0 && i < kills + more_kills)) && !HasFailure(); ++i) {
    const fs::path folder = in("train-" + std::to_string(i)), run = folder / "run";
    SCOPED_TRACE(folder);
    fs::create_directories(folder);
    const bool was_killed = kill_after(time * ((i % kills + random_share()) / kills), command(folder));
    killed += was_killed;

    // Whatever stands under its final name is whole: models load, checkpoints have all their files.
    for (const fs::path& model : {run, run / "best"})
      if (fs::exists(model / "model.safetensors")) succeed({"inspect", model, "--json"});
    if (fs::exists(run / "checkpoints"))
      for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints")) {
        if (is_temporary(entry)) continue;
        for (const char* name : {"model.safetensors", "optimiser.safetensors", "config.json", "state.json"})
          EXPECT_TRUE(fs::exists(entry.path() / name)) << entry.path() / name;
        succeed({"inspect", entry.path(), "--json"});
      }

    // Another kill in the midst of the resumed run, and then to the end.
    const bool begun = fs::exists(run / "run.toml");
    resumed += was_killed && begun;
    had_ended += fs::exists(run / "checkpoints" / "6");
    const Strings again = begun ? Strings{"train", "--resume", run, "--threads", "1"} : command(folder);
    kill_after(time * random_share(), again);
    succeed(fs::exists(run / "run.toml") ? Strings{"train", "--resume", run, "--threads", "1"}
                                         : command(folder));
    const auto found = results_of(run);
    for (const auto& [name, bytes] : expected)
      EXPECT_TRUE(found.contains(name) && found.at(name) == bytes) << name << " differs";
    EXPECT_EQ(found.size(), expected.size());
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
      EXPECT_FALSE(is_temporary(entry)) << entry.path();
    fs::remove_all(folder);
  }
  EXPECT_GT(resumed, 0);
  std::cout << "train: seed " << seed_ << ", " << killed << " of " << i << " killed, " << resumed
            << " resumed, " << had_ended << " had saved their last checkpoint\n";
}

}  // namespace
}  // namespace linnet
