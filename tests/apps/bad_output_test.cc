// Outputs that cannot be written, and full disks.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "base/sanitizers.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

TEST(BadOutput, FolderThatHoldsSomethingIsLeftAlone) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  folder.file("precious", "mine");
  const std::string here = folder.path().string(), file = (folder / "precious").string();
  refuses(failed, {"train", tiny.config("copy"), "--out", here}, {here, "--resume"});
  refuses(failed, {"train", tiny.config("copy"), "--out", file}, {file});
  refuses(usage, {"train", "--resume", file}, {file, "run.toml"});
  refuses(usage, {"train", "--resume", here}, {here, "run.toml"});
  refuses(failed, {"data", "digits", "--out", here, "--count", "2", "--test", "2"}, {here});
  refuses(failed, {"data", "digits", "--out", file, "--count", "2", "--test", "2"}, {file});
  EXPECT_EQ(read_file(folder / "precious"), "mine");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(BadOutput, FileThatIsAFolderOrInNoFolderIsRefused) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  for (const std::string& out : {folder.path().string(), (folder / "none/out").string()}) {
    for (const char* data : {"copy", "reverse"})
      refuses(failed, {"data", data, "--out", out, "--count", "2"}, {"[output]", out});
    refuses(failed, {"generate", tiny.digits(), "--count", "1", "--out", out}, {out});
    refuses(failed, {"generate", tiny.text(), "--length", "2", "--out", out}, {out});
  }
  EXPECT_EQ(folder.entries(), 0);
  refuses(usage, {"generate", LINNET_SOURCE_FOLDER "/models/digits", "--count", "1"}, {"--out"});
  const std::string run = copy_of(tiny.digits(), folder);
  fs::create_directories(folder / "run/samples/generated.png");
  refuses(failed, {"generate", run, "--count", "1"}, {"[output]", "generated.png"});
  // Before the first picture is drawn: so many take an hour.
  refuses(usage, {"generate", tiny.digits(), "--count", "2000000", "--out", (folder / "many.png").string()},
          {"pixels"});
}

TEST(StandardOutput, HoldsTheFileThatIsWrittenThereAlone) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string();
  for (const Strings& command : std::vector<Strings>{{"data", "copy", "--count", "2", "--out"},
                                                     {"data", "reverse", "--count", "2", "--out"},
                                                     {"embed", tiny.text(), "--data", tiny.learnt(), "--out"},
                                                     {"evaluate", tiny.text(), "--per-token"},
                                                     {"plot", tiny.text(), "--out"}}) {
    EXPECT_NE(succeed(joined(command, {out})).out, "");
    const std::string standard = folder.file("standard", "").string();
    const Ended ended = succeed(joined(command, {"/dev/stdout"}), {.out = standard});
    EXPECT_EQ(read_file(standard), read_file(out)) << command[0];
    EXPECT_NE(ended.err, "") << command[0];
  }
}

TEST(FullDisk, LeavesTheOldFileAndNothingBesideIt) {
#ifdef LINNET_THREAD_SANITIZER
  GTEST_SKIP() << "the thread sanitizer has files of its own, which the limit would break";
#endif
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string out = folder.file("out", "old").string();
  const Program::Limits full{.file_bytes = 512};
  for (const Strings& command : std::vector<Strings>{
           {"data", "copy", "--out", out, "--count", "200", "--length", "16"},
           {"generate", tiny.digits(), "--count", "9", "--out", out},
           {"generate", tiny.text(), "--length", "1000", "--out", out},
       }) {
    const Ended ended = run_linnet(command, full);
    EXPECT_EQ(ended.status, 1) << ended.signal;
    EXPECT_EQ(ended.out, "");
    const Strings lines = lines_of(ended.err);
    ASSERT_FALSE(lines.empty());
    EXPECT_NE(lines.back().find("cannot write " + out), std::string::npos) << lines.back();
    EXPECT_EQ(read_file(out), "old");
    EXPECT_EQ(folder.entries(), 1);
  }
  const std::string digits = (folder / "digits").string();
  refuses(failed, {"data", "digits", "--out", digits, "--count", "30", "--test", "30"},
          {"train-images", "cannot write"}, full);
  EXPECT_FALSE(fs::exists(digits));
  EXPECT_EQ(folder.entries(), 1);
  refuses(failed, {"data", "copy", "--out", "/dev/full", "--count", "2"}, {"/dev/full", "No space left"});
  refuses(failed, {"generate", tiny.text(), "--length", "2", "--out", "/dev/full"},
          {"/dev/full", "No space left"});
}

TEST(FullDisk, TrainingKeepsItsLastGoodFiles) {
#ifdef LINNET_THREAD_SANITIZER
  GTEST_SKIP() << "the thread sanitizer has files of its own, which the limit would break";
#endif
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string run = copy_of(tiny.copy(), folder);
  // More steps than the run has done: it resumes, and fails to save.
  fs::remove_all(folder / "run/checkpoints/6");
  const std::string weights = read_file(folder / "run/model.safetensors");
  const Ended ended = run_linnet({"train", "--resume", run}, {.file_bytes = 4000});
  EXPECT_EQ(ended.status, 1) << ended.signal;
  EXPECT_NE(lines_of(ended.err).back().find("cannot write"), std::string::npos) << ended.err;
  EXPECT_EQ(read_file(folder / "run/model.safetensors"), weights);
  EXPECT_TRUE(fs::exists(folder / "run/checkpoints/4/state.json"));
  EXPECT_FALSE(fs::exists(folder / "run/checkpoints/6"));
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(run))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  succeed({"train", "--resume", run});
  EXPECT_EQ(read_file(folder / "run/model.safetensors"),
            read_file(fs::path(tiny.copy()) / "model.safetensors"));
}

TEST(FullDisk, StandardOutputThatCannotBeWrittenIsAFailure) {
  const Ended ended = run_linnet({"families"}, {.out = "/dev/full"});
  EXPECT_EQ(ended.status, 1) << ended.signal;
  EXPECT_NE(ended.err.find("standard output"), std::string::npos) << ended.err;
}

// A text of millions of tokens is not drawn to its end for nobody.
TEST(FullDisk, ATextThatCannotBeShownIsNotDrawn) {
  const Ended ended = run_linnet({"generate", TinyModels::get().text(), "--length", "16777216"},
                                 {.time = std::chrono::seconds(40), .out = "/dev/full"});
  EXPECT_EQ(ended.status, 1) << ended.signal;
  EXPECT_NE(ended.err.find("cannot write standard output"), std::string::npos) << ended.err;
}

TEST(FullDisk, StandardErrorThatCannotBeWrittenHarmsNothing) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  EXPECT_EQ(run_linnet({"train", tiny.config("copy"), "--out", run}, {.err = "/dev/full"}).status, 0);
  EXPECT_EQ(run_linnet({"train", tiny.config("copy"), "--out", run}, {.err = "/dev/full"}).status, 1);
  EXPECT_EQ(run_linnet({"trian"}, {.err = "/dev/full"}).status, 2);
}

TEST(FullOutput, EndsTheProgramWithASentenceAndFullNotesDoNot) {
  const Ended ended = run_linnet({"completions", "bash"}, {.out = "/dev/full"});
  EXPECT_EQ(ended.status, failed);
  EXPECT_TRUE(ended.err.starts_with("linnet: [output] cannot write standard output: ")) << ended.err;
  const TemporaryFolder folder;
  const std::vector<float> numbers(2 * 5 * 2 * 4, 0.5f);
  std::vector<NamedTensor> tensors;
  for (const char* name : {"q", "k", "v"})
    tensors.push_back({name, DType::f32, {2, 5, 2, 4}, numbers.data()});
  write_safetensors(folder / "in", tensors, {});
  const Program::Limits full = {.err = "/dev/full"};
  const Ended attended =
      run_linnet({"attend", (folder / "in").string(), "--out", (folder / "out").string(), "--json"}, full);
  EXPECT_EQ(attended.status, 0);
  EXPECT_EQ(json_of(attended)["form"], "parallel");
  EXPECT_EQ(run_linnet({"bench", "train", "--config", TinyModels::get().config("copy"), "--seconds", "0.01",
                        "--repeat", "2"},
                       full)
                .status,
            0);
}

}  // namespace
}  // namespace linnet
