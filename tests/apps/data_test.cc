// Data of the user's own: several files, files for validation and testing, token ids, labelled lines, images.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "apps/refusal.h"
#include "io/file.h"
#include "io/json.h"
#include "io/midi.h"
#include "io/png.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class OwnData : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void config(const std::string& data) {
    folder_.file(
        "config.toml",
        "[data]\n" + data +
            "[model]\nlayers = 1\nheads = 2\nwidth = 16\nfeed_forward = 32\n"
            "[training]\nsteps = 2\nbatch = 2\nsample_every = 0\nevaluate_every = 2\ncheckpoint_every = 2\n");
  }
  /// Of these words in the folder of the test.
  Ended run(const Strings& words) { return succeed(words, {.folder = folder_.path().string()}); }
  std::int64_t tokens(const Strings& words) {
    return json_of(run(joined(joined({"evaluate", "run"}, words), {"--json"})))["tokens"].get<std::int64_t>();
  }

  TemporaryFolder folder_;
};

TEST_F(OwnData, AKindThatIsChosenCountsForMoreThanTheNameOfAFile) {
  std::string table = "a,b\n";
  for (int i = 0; i < 60; ++i) table += std::to_string(i % 7) + ",1\n";
  folder_.file("table.csv", table);
  config("kind = \"text\"\nlength = 16\n");
  const Strings train = {"train", "config.toml", "--data", "table.csv"};
  run(joined(train, {"--out", "series"}));
  EXPECT_THAT(read_file(folder_ / "series/run.toml"), HasSubstr("kind = \"series\""));
  run(joined(train, {"--out", "text", "--set", "data.kind=text"}));
  EXPECT_THAT(read_file(folder_ / "text/run.toml"), HasSubstr("kind = \"text\""));
}

TEST_F(OwnData, MidiFilesBecomePiecesOfSeveralFields) {
  const std::vector<std::int32_t> pitches = {72, 60, -1, 62, 74, 130 - 68};
  folder_.file("in.mid", midi_file({2, pitches}, 4, 90));
  const Strings midi = {"data", "midi", "in.mid", "--voices", "2"};
  EXPECT_EQ(run(joined(midi, {"--out", "out.safetensors"})).out,
            "pieces: 1, with 3 steps of 2 voices: out.safetensors\n");
  const Tensor tokens = Safetensors::read(folder_ / "out.safetensors").tensor("tokens");
  EXPECT_THAT(tokens.span<std::int32_t>(), ElementsAre(52, 40, 0, 42, 54, 42));
  EXPECT_THAT(
      run({"data", "midi", "in.mid", "--voices", "1", "--last-pitch", "73", "--out", "one.safetensors"}).out,
      AllOf(HasSubstr("left out: 1 notes beyond 1 voices"), HasSubstr("1 notes of pitches outside 21 … 73")));
  folder_.file("broken.mid", "MThd");
  EXPECT_THAT(run({"data", "midi", ".", "--skip", "--out", "out.safetensors"}).err,
              HasSubstr("broken.mid: expected"));
  const Strings here = {"data", "midi", path("in.mid")};
  refuses(usage, joined(here, {"--out", path("in.mid")}), {"in.mid"});
  refuses(usage, joined(here, {"--out", path("out.npy")}), {"a name in .safetensors", "out.npy"});
  refuses(failed, {"data", "midi", path("broken.mid"), "--out", path("out.safetensors")},
          {"broken.mid: expected"});
}

TEST_F(OwnData, TextOfSeveralFilesWithOthersForValidationAndTesting) {
  for (const char* name : {"a1.txt", "a2.txt"}) folder_.file(name, std::string(100, 'a'));
  folder_.file("valid.txt", std::string(33, 'b'));
  folder_.file("test.txt", std::string(44, 'c'));
  config("kind = \"text\"\nlength = 16\nvalidation = \"valid.txt\"\ntest = \"test.txt\"\n");
  const Strings train = {"train", "config.toml", "--data", "a?.txt", "--out", "run"};
  EXPECT_THAT(run(train).err, HasSubstr(fmt::format("training on {} examples", 200 - 16 + 1)));
  EXPECT_THAT(read_file(folder_ / "run/run.toml"), HasSubstr("\"" + path("a?.txt") + "\""));
  EXPECT_EQ(tokens({}), 33);
  EXPECT_EQ(tokens({"--split", "test"}), 44);
  EXPECT_EQ(tokens({"--data", "a1.txt", "--split", "test"}), 100);
  EXPECT_THAT(run({"evaluate", "run", "--data", "a1.txt", "--split", "test"}).err,
              HasSubstr("warning: the run was trained with a1.txt"));
  EXPECT_THAT(run({"evaluate", "run", "--data", "test.txt", "--split", "test"}).err,
              testing::Not(HasSubstr("trained with")));
  EXPECT_EQ(tokens({"--data", "a1.txt,a2.txt"}), 200 / 10);

  refuses(usage, {"train", "--resume", path("run"), "--set", "data.validation="},
          {"data.validation", "valid.txt"});
  refuses(usage, {"train", "--resume", path("run"), "--set", "data.validation=" + path("test.txt")},
          {"expected the data that the run began with"});
  folder_.file("moved.txt", std::string(33, 'b'));
  succeed({"train", "--resume", path("run"), "--set", "data.validation=" + path("moved.txt"), "--set",
           "training.steps=3"});
  refuses(usage, {"evaluate", path("run"), "--data", path("*.bin")}, {"does not exist"});
  refuses(usage, {"evaluate", path("run"), "--data", path("a*.txt"), "--per-token", path("a2.txt")},
          {"--per-token", "--data"});
}

TEST_F(OwnData, TokensOfARawFile) {
  std::string bytes;
  for (int i = 0; i < 400; ++i) bytes += std::string{static_cast<char>(i % 7), '\1'};
  folder_.file("tokens.bin", bytes);
  config("kind = \"tokens\"\nlength = 16\n");
  run({"train", "config.toml", "--data", "tokens.bin", "--out", "run"});
  EXPECT_EQ(parse_json(read_file(folder_ / "run/config.json"), "config.json")["model"]["vocabulary"],
            256 + 7);
  EXPECT_EQ(tokens({}), 40);
  EXPECT_EQ(tokens({"--data", "tokens.bin"}), 40);
  EXPECT_EQ(tokens({"--data", "tokens.bin", "--split", "test"}), 400);
  refuses(usage, {"evaluate", path("run"), "--split", "test"}, {"part for testing", "data.test"});
  folder_.file("more.bin", "\xff\xff");
  refuses(failed, {"evaluate", path("run"), "--data", path("more.bin"), "--split", "test"},
          {"more.bin", "from 0 to 262, got 65535 in step 0"});
}

TEST_F(OwnData, ConvertedModelsReadTokensOfFourBytesAsTheirRunDid) {
  std::string bytes;
  for (int i = 0; i < 400; ++i) bytes += std::string{static_cast<char>(i % 7), '\1', '\0', '\0'};
  folder_.file("tokens.bin", bytes);
  config("kind = \"tokens\"\nlength = 16\ntoken_bytes = 4\n");
  run({"train", "config.toml", "--data", "tokens.bin", "--out", "run"});
  succeed({"convert", path("run"), "--weights", "f32", "--out", path("converted")});
  const auto evaluated = [&](const char* model) {
    return json_of(
        succeed({"evaluate", path(model), "--data", path("tokens.bin"), "--split", "test", "--json"}));
  };
  EXPECT_EQ(evaluated("run")["tokens"], 400);
  for (const char* member : {"tokens", "bits_per_token"})
    EXPECT_EQ(evaluated("converted")[member], evaluated("run")[member]) << member;
}

TEST_F(OwnData, SeriesWithTheColumnsOfTheRun) {
  const auto series = [&](const char* name, int rows) {
    std::string text = "a,b\n";
    for (int i = 0; i < rows; ++i) text += fmt::format("{},{}\n", i % 7, i % 5);
    folder_.file(name, text);
  };
  series("long.csv", 100);
  series("short.csv", 50);
  config("length = 16\ncolumns = \"b\"\nhorizon = 2\n");
  run({"train", "config.toml", "--data", "long.csv", "--out", "run"});
  EXPECT_THAT(read_file(folder_ / "run/run.toml"), HasSubstr("\"" + path("long.csv") + "\""));
  // A part of n rows has n - 1 steps with two numbers each.
  EXPECT_EQ(tokens({}), 18);
  EXPECT_EQ(tokens({"--split", "test"}), 18);
  EXPECT_EQ(tokens({"--data", "short.csv"}), 8);
  EXPECT_EQ(tokens({"--data", "short.csv", "--split", "test"}), 98);
  EXPECT_EQ(tokens({"--data", "*.csv", "--split", "test"}), 98 + 198);
}

TEST_F(OwnData, LinesWithTheLabelsOfTheRun) {
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += fmt::format("{}\ttext {}\n", i % 2 == 0 ? "good" : "bad", i);
  folder_.file("lines.tsv", lines);
  folder_.file("good.tsv", "good\tone\ngood\ttwo\n");
  folder_.file("new.tsv", "new\tone\n");
  config("kind = \"lines\"\nlength = 16\n");
  run({"train", "config.toml", "--data", "lines.tsv", "--out", "run"});
  EXPECT_EQ(json_of(run({"evaluate", "run", "--json"}))["examples"], 3);
  EXPECT_EQ(tokens({"--data", "good.tsv", "--split", "test"}), 6);
  refuses(failed, {"evaluate", path("run"), "--data", path("new.tsv"), "--split", "test"},
          {"new.tsv", "2 labels of data.path", "\"new\" in line 1"});
  run({"embed", "run", "--data", "lines.tsv", "--data-kind", "lines", "--split", "test", "--out",
       "e.safetensors"});
  const Tensor labels = Safetensors::read(folder_ / "e.safetensors").tensor("labels");
  EXPECT_THAT(labels.shape(), ElementsAre(30));
  EXPECT_EQ(labels.span<std::int64_t>()[0], 1);
  EXPECT_EQ(labels.span<std::int64_t>()[1], 0);
  folder_.file("binary.tsv", std::string("a\tb\0", 4));
  refuses(failed, {"train", path("config.toml"), "--data", path("binary.tsv"), "--out", path("other")},
          {"binary.tsv", "binary file"});
}

TEST_F(OwnData, ImagesOfFolders) {
  for (const char* name : {"dark", "light"}) {
    std::filesystem::create_directories(folder_ / "images" / name);
    for (int i = 0; i < 10; ++i)
      write_png(
          folder_ / "images" / name / fmt::format("{}.png", i),
          {.width = 4, .height = 4, .pixels = std::vector<std::uint8_t>(16, name[0] == 'd' ? 10 : 240)});
  }
  config("kind = \"digits\"\nsize = 2\nlevels = 4\n");
  run({"train", "config.toml", "--data", "images", "--out", "run"});
  EXPECT_THAT(read_file(folder_ / "run/run.toml"), HasSubstr("kind = \"images\""));
  EXPECT_EQ(tokens({}), 2 * 4);
  EXPECT_EQ(tokens({"--data", "images", "--split", "test"}), 20 * 4);
  write_png(folder_ / "images/dark/11.png",
            {.width = 5, .height = 4, .pixels = std::vector<std::uint8_t>(20)});
  refuses(
      failed,
      {"train", path("config.toml"), "--data", path("images"), "--set", "data.size=0", "--out", path("x")},
      {"0.png of 4 × 4", "11.png of 4 × 5"});
}

}  // namespace
}  // namespace linnet
