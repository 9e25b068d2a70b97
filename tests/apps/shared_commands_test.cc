// generate and evaluate on the ranks of mpirun: their files and results are those of one process.
#include <gtest/gtest.h>

#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

Ended run_on(int ranks, const Strings& arguments, Program::Limits limits = {}) {
  limits.launcher = {LINNET_MPIRUN, LINNET_MPIRUN_COUNT, std::to_string(ranks)};
  return run_linnet(arguments, limits);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// What is printed, less what measures time.
std::string untimed(const std::string& out) {
  if (!out.starts_with("{")) return out;
  Json json = parse_json(out, "standard output");
  for (const char* key : {"seconds", "images_per_second", "tokens_per_second", "steps_per_second"})
    json.erase(key);
  return json.dump();
}

class SharedCommands : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// On 2 and 3 ranks the command prints what it prints alone, and writes the same `files`.
  void expect_same(const Strings& arguments, const Strings& files = {}, const Program::Limits& limits = {}) {
    const Ended alone = succeed(joined(arguments, {"--threads", "1"}), limits);
    std::vector<std::string> expected;
    for (const std::string& file : files) {
      expected.push_back(read_file(file));
      std::filesystem::remove(file);
    }
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(arguments[0] + " on " + std::to_string(ranks) + " ranks");
      const Ended shared = run_on(ranks, joined(arguments, {"--threads", "1"}), limits);
      EXPECT_EQ(shared.status, 0) << shared.err;
      EXPECT_EQ(untimed(shared.out), untimed(alone.out));
      // The last line of progress, which is printed in any case.
      for (const char* always : {"images/s: ", " tokens/s\n", "streams in "})
        EXPECT_EQ(count(shared.err, always), count(alone.err, always)) << shared.err;
      for (std::size_t i = 0; i < files.size(); ++i) {
        EXPECT_EQ(read_file(files[i]), expected[i]) << files[i];
        std::filesystem::remove(files[i]);
      }
    }
  }

  void expect_refused(int ranks, int status, const Strings& arguments, const std::string& words) {
    const Ended ended = run_on(ranks, arguments);
    EXPECT_EQ(ended.status, status) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(count("\n" + ended.err, "\nlinnet"), 1) << ended.err;
    EXPECT_EQ(count(ended.err, words), 1) << words << " in: " << ended.err;
  }

  const TinyModels& tiny_ = TinyModels::get();
  TemporaryFolder folder_;
};

TEST_F(SharedCommands, PicturesAreThoseOfOneProcess) {
  const std::string out = path("out.png"), states = path("out.states"), model = tiny_.digits();
  expect_same({"generate", model, "--count", "7", "--streams", "2", "--seed", "5", "--out", out}, {out});
  expect_same({"generate", model, "--count", "1", "--json", "--out", out}, {out});
  expect_same({"generate", model, "--count", "5", "--steps", "9", "--save-states", states, "--out", out},
              {states, out});
  succeed({"generate", model, "--count", "5", "--steps", "9", "--save-states", states});
  expect_same({"generate", model, "--states", states, "--json", "--out", out}, {out});
  succeed({"generate", model, "--count", "1", "--out", path("given.png"), "--columns", "1"});
  expect_same({"generate", model, "--complete", path("given.png"), "--out", out}, {out});
}

TEST_F(SharedCommands, TextsAreThoseOfOneProcess) {
  const std::string out = path("out.txt"), states = path("out.states"), model = tiny_.text();
  const Strings texts = {"generate", model, "--prompt", "the quick", "--length", "12", "--count"};
  expect_same(joined(texts, {"4"}));
  expect_same(joined(texts, {"1"}));
  expect_same(joined(texts, {"5", "--json"}));
  expect_same(joined(texts, {"5", "--out", out}), {out});
  expect_same(joined(texts, {"4", "--steps", "5", "--save-states", states}), {states});
  succeed(joined(texts, {"4", "--steps", "5", "--save-states", states}));
  expect_same({"generate", model, "--states", states});
  // The launcher gives its standard input to rank 0 alone.
  folder_.file("prompt.txt", "over the");
  Program::Limits with_input;
  with_input.in = path("prompt.txt");
  expect_same({"generate", model, "--prompt-file", "-", "--length", "6", "--count", "3"}, {}, with_input);
}

TEST_F(SharedCommands, ASingleTextIsPrintedWhileItIsDrawn) {
  const std::string out = path("out.txt");
  folder_.file("out.txt", "");
  Program::Limits limits;
  limits.launcher = {LINNET_MPIRUN, LINNET_MPIRUN_COUNT, "3"};
  limits.out = out;
  Program running(
      {"generate", tiny_.text(), "--prompt", "the quick", "--length", "10000000", "--threads", "1"}, limits);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (read_file(out).size() < 100 && !running.has_ended() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(running.has_ended());
  EXPECT_TRUE(read_file(out).starts_with("the quick"));
  running.send(SIGTERM);
  running.wait();
}

TEST_F(SharedCommands, TokensAreThoseOfOneProcess) {
  expect_same({"generate", tiny_.copy(), "--prompt", "0 3 1", "--length", "9", "--count", "3"});
}

TEST_F(SharedCommands, AnswersAreThoseOfOneProcess) {
  folder_.file("reverse.toml",
               "[data]\nkind = \"reverse\"\nsource_length = 3\nlength = 4\nexamples = 200\n"
               "[model]\nencoder_layers = 1\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 16\n"
               "[training]\nsteps = 3\nbatch = 4\nsample_every = 0\nevaluate_every = 0\n");
  succeed({"train", path("reverse.toml"), "--out", path("reverse")});
  folder_.file("sources.txt", "abc\nde\nfgh\nijk\nl\n");
  const Strings answers = {"generate", path("reverse"), "--source-file"};
  expect_same(joined(answers, {path("sources.txt")}));
  expect_same(joined(answers, {path("sources.txt"), "--json"}));
  Program::Limits with_input;
  with_input.in = path("sources.txt");
  expect_same(joined(answers, {"-"}), {}, with_input);
  expect_same({"evaluate", path("reverse"), "--examples", "20", "--json"});
}

TEST_F(SharedCommands, PiecesAreThoseOfOneProcess) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 600; ++i) tokens.insert(tokens.end(), {i % 5, i * i % 3});
  const NamedTensor tensor = {"tokens", DType::i32, {600, 2}, tokens.data()};
  write_safetensors(path("pieces.safetensors"), std::span(&tensor, 1), {});
  folder_.file("fields.toml",
               "[data]\nkind = \"tokens\"\nlength = 16\n"
               "[model]\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 32\n"
               "[training]\nsteps = 3\nbatch = 4\nsample_every = 0\nevaluate_every = 0\n");
  succeed({"train", path("fields.toml"), "--data", path("pieces.safetensors"), "--out", path("fields")});
  const std::string out = path("out.safetensors"), roll = path("out.png");
  expect_same({"generate", path("fields"), "--count", "5", "--length", "7", "--json", "--out", out}, {out});
  expect_same({"generate", path("fields"), "--length", "7", "--json", "--out", roll}, {roll});
  expect_same({"evaluate", path("fields"), "--batch", "1", "--json"});
}

TEST_F(SharedCommands, SeriesGoOnAsInOneProcess) {
  std::string series = "wave,ramp\n";
  for (int i = 0; i < 400; ++i) series += std::to_string(i * 7 % 11) + "," + std::to_string(i) + "\n";
  folder_.file("series.csv", series);
  folder_.file("series.toml",
               "[data]\nkind = \"series\"\nlength = 16\n"
               "[model]\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 32\npositions = \"none\"\n"
               "[training]\nsteps = 3\nbatch = 4\nsample_every = 0\nevaluate_every = 0\n");
  succeed({"train", path("series.toml"), "--data", path("series.csv"), "--out", path("series")});
  const std::string out = path("out.csv");
  expect_same({"generate", path("series"), "--prompt-file", path("series.csv"), "--length", "5", "--json",
               "--out", out},
              {out});
  expect_same({"evaluate", path("series"), "--batch", "1", "--json"});
}

TEST_F(SharedCommands, EvaluationsAreThoseOfOneProcess) {
  const std::string csv = path("tokens.csv");
  expect_same({"evaluate", tiny_.digits(), "--examples", "20", "--batch", "3", "--json"});
  expect_same({"evaluate", tiny_.digits(), "--examples", "4", "--batch", "8", "--json"});
  expect_same({"evaluate", tiny_.text(), "--examples", "5", "--batch", "1", "--per-token", csv, "--json"},
              {csv});
}

TEST_F(SharedCommands, PrintAnErrorOnce) {
  for (const int ranks : {2, 3}) {
    expect_refused(ranks, failed, {"generate", path("none")}, "linnet: [model] expected a folder");
    expect_refused(ranks, failed, {"evaluate", path("none")}, "linnet: [model] expected a folder");
    expect_refused(ranks, usage, {"generate", tiny_.digits(), "--prompt", "a"},
                   "no --prompt for a model of pictures");
  }
  expect_refused(3, usage, {"evaluate", tiny_.digits(), "--examples", "none"}, "--examples");
  // What rank 0 alone finds out.
  expect_refused(3, failed, {"generate", tiny_.text(), "--out", path("none/out.txt")},
                 "linnet: [output] expected a path in a folder that exists");
  expect_refused(3, failed, {"generate", tiny_.text(), "--prompt-file", "-"},
                 "linnet: [prompt] expected something to continue");
}

// Each rank would do its share of another work.
TEST_F(SharedCommands, WorkThatDiffersIsRefused) {
  const std::string one = folder_.file("one.txt", std::string(4000, 'a') + "b"),
                    two = folder_.file("two.txt", std::string(4000, 'a') + "c"), text = tiny_.text(),
                    narrow = path("narrow");
  succeed({"convert", text, "--weights", "bf16", "--out", narrow});
  const auto refuse = [&](const Strings& first, const Strings& second, const std::string& words) {
    Program::Limits limits;
    limits.launcher = joined(joined(Strings{LINNET_MPIRUN, LINNET_MPIRUN_COUNT, "1", LINNET_PROGRAM}, first),
                             {":", LINNET_MPIRUN_COUNT, "1"});
    const Ended ended = run_linnet(second, limits);
    EXPECT_EQ(ended.status, usage) << ended.err;
    EXPECT_EQ(count(ended.err, "linnet: "), 1) << ended.err;
    EXPECT_EQ(count(ended.err, "linnet: [ranks] expected all ranks to have " + words), 1) << ended.err;
  };
  refuse({"evaluate", text}, {"generate", text}, "the command = evaluate as rank 0, got generate on rank 1");
  refuse({"evaluate", text, "--data", one}, {"evaluate", text, "--data", two}, "data = 4001 bytes in 1 file");
  refuse({"evaluate", text, "--batch", "2"}, {"evaluate", text}, "--batch = 2 as rank 0, got its default");
  refuse({"evaluate", text, "--data", one}, {"evaluate", narrow, "--data", one}, "the model = one with");
  refuse({"generate", text, "--seed", "1"}, {"generate", text, "--seed", "2"}, "--seed = 1 as rank 0, got 2");
  refuse({"generate", text, "--prompt-file", one}, {"generate", text, "--prompt-file", two},
         "--prompt-file = a file with");
}

TEST_F(SharedCommands, OthersRefuseSeveralRanks) {
  expect_refused(2, usage, {"inspect", tiny_.digits()},
                 "linnet: [mpirun] expected train, generate or evaluate for 2 ranks, got inspect");
  expect_refused(3, usage, {"bench", "attention", "--length", "16"},
                 "linnet: [mpirun] expected train, generate or evaluate for 3 ranks, got bench");
}

TEST_F(SharedCommands, EndSilentlyByASignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Program::Limits limits;
    limits.launcher = {LINNET_MPIRUN, LINNET_MPIRUN_COUNT, "3"};
    Program running({"generate", tiny_.text(), "--length", "10000000", "--count", "3", "--threads", "1",
                     "--out", path("out.txt")},
                    limits);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    EXPECT_FALSE(running.has_ended());
    running.send(signal);
    const Ended ended = running.wait();
    EXPECT_NE(ended.status, 0);
    EXPECT_EQ(count(ended.err, "linnet"), 0) << ended.err;
    EXPECT_FALSE(std::filesystem::exists(path("out.txt")));
  }
}

}  // namespace
}  // namespace linnet
