#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <vector>

#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "base/sanitizers.h"
#include "data/idx.h"
#include "io/file.h"
#include "io/png.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "support/gzip.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// What a file may have become: `change` makes the bytes of a good one bad.
struct Damage {
  std::string name;
  std::function<std::string(std::string)> change;
};

const std::vector<Damage> damages = {
    {"empty", [](std::string) { return std::string(); }},
    {"truncated", [](std::string bytes) { return bytes.substr(0, bytes.size() / 2); }},
    {"without its end", [](std::string bytes) { return bytes.substr(0, bytes.size() - 13); }},
    {"damaged start",
     [](std::string bytes) {
       for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 12); ++i)
         bytes[i] = static_cast<char>(~bytes[i]);
       return bytes;
     }},
    {"something else",
     [](std::string) {
       return "\x7f"
              "ELF" +
              std::string(300, '\0');
     }},
};

/// Runs `check` with `path` missing, as a folder, and after every damage; then puts the file back.
void for_every_damage(const fs::path& path, const std::function<void()>& check) {
  const std::string good = read_file(path);
  for (const Damage& damage : damages) {
    SCOPED_TRACE(path.filename().string() + ", " + damage.name);
    write_file_atomically(path, damage.change(good));
    check();
  }
  {
    SCOPED_TRACE(path.filename().string() + ", missing");
    fs::remove(path);
    check();
  }
  {
    SCOPED_TRACE(path.filename().string() + ", a folder");
    fs::create_directory(path);
    check();
    fs::remove(path);
  }
  write_file_atomically(path, good);
}

/// A copy of a run that may be damaged.
std::string copy_of(const std::string& run, const TemporaryFolder& folder) {
  fs::copy(run, folder / "run", fs::copy_options::recursive);
  return (folder / "run").string();
}

TEST(BadLine, UnknownCommandsAndOptionsAreRefusedWithTheNearest) {
  refuses(usage, {}, {"command"});
  refuses(usage, {"trian"}, {"trian", "did you mean train?"});
  refuses(usage, {"train", "digits", "--uot", "x"}, {"--uot", "did you mean --out?"});
  refuses(usage, {"generate", "m", "--temprature", "1"}, {"--temprature", "did you mean --temperature?"});
  refuses(usage, {"bench"}, {"command"});
  refuses(usage, {"bench", "atention"}, {"atention", "did you mean attention?"});
  refuses(usage, {"data", "digit", "--out", "x"}, {"digit", "did you mean digits?"});
  refuses(usage, {"train", "digts", "--out", "x"}, {"digts", "did you mean digits?"});
  refuses(usage, {"train", "digts.toml", "--out", "x"}, {"digts.toml", "does not exist"});
  refuses(usage, {"train", "text", "--data", "no/such.txt", "--out", "x"}, {"no/such.txt", "does not exist"});
  refuses(usage, {"inspect", "a", "b"}, {"b"});
  refuses(usage, {"families", "--xyzzy"}, {"--xyzzy"});
}

TEST(BadLine, OptionsThatAreMissingOrDoNotFitAreRefused) {
  refuses(usage, {"train"}, {"config"});
  refuses(usage, {"train", "digits"}, {"--out"});
  refuses(usage, {"generate"}, {"model"});
  refuses(usage, {"evaluate", LINNET_SOURCE_FOLDER "/models/digits"}, {"--data"});
  refuses(usage, {"attend", "in.safetensors"}, {"--out"});
  refuses(usage, {"attend", "in.safetensors", "--out", "o", "--mask", "casual"},
          {"--mask", "casual", "causal"});
  refuses(usage, {"generate", "m", "--count", "0"}, {"--count", "0"});
  refuses(usage, {"generate", "m", "--count", "-3"}, {"--count", "-3"});
  refuses(usage, {"generate", "m", "--count", "many"}, {"--count", "many"});
  refuses(usage, {"generate", "m", "--count", "99999999999999999999"}, {"--count", "99999999999999999999"});
  refuses(usage, {"generate", "m", "--seed", "x"}, {"--seed", "x"});
  refuses(usage, {"generate", "m", "--threads", "0"}, {"--threads", "0"});
  refuses(usage, {"generate", "m", "--prompt", "a", "--prompt-file", "b"}, {"--prompt", "--prompt-file"});
  refuses(usage, {"train", "digits", "--out"}, {"--out"});
}

TEST(BadSampling, ValuesThatCannotBeAreRefused) {
  const std::string model = TinyModels::get().text();
  for (const std::string value : {"nan", "-1", "inf"})
    refuses(usage, {"generate", model, "--temperature", value}, {"temperature", value});
  for (const std::string value : {"0", "-2"})
    refuses(usage, {"generate", model, "--top-k", value}, {"top-k", value});
  for (const std::string value : {"0", "1.5", "nan", "-0.5"})
    refuses(usage, {"generate", model, "--top-p", value}, {"top-p", value});
}

class BadConfiguration : public testing::Test {
 protected:
  void refuses_settings(const Strings& settings, const Strings& words, int status = usage,
                        const std::string& config = "copy") {
    Strings arguments = {"train", TinyModels::get().config(config), "--out", (folder_ / "run").string()};
    for (const std::string& setting : settings) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    refuses(status, arguments, words);
    EXPECT_EQ(folder_.entries(), 0) << "something was left";
  }

  void refuses_file(const std::string& toml, const Strings& words) {
    const std::string path = folder_.file("bad.toml", toml).string();
    refuses(usage, {"train", path, "--out", (folder_ / "run").string()}, joined({path}, words));
    EXPECT_EQ(folder_.entries(), 1) << "something was left";
  }

  TemporaryFolder folder_;
};

TEST_F(BadConfiguration, KeysAndValuesOfSettingsAreRefused) {
  refuses_settings({"model.widht=32"}, {"model.widht", "did you mean \"model.width\"?"});
  refuses_settings({"layers=2"}, {"layers", "did you mean \"model.layers\"?"});
  refuses_settings({"xyzzy=2"}, {"xyzzy"});
  refuses_settings({"model.width"}, {"--set", "key=value", "model.width"});
  refuses_settings({"=3"}, {"--set", "key=value"});
  refuses_settings({"model.layers=two"}, {"model.layers", "integer", "two"});
  refuses_settings({"model.layers=1.5"}, {"model.layers", "integer", "1.5"});
  refuses_settings({"model.layers="}, {"model.layers", "integer"});
  refuses_settings({"model.tied_output=maybe"}, {"model.tied_output", "true or false", "maybe"});
  refuses_settings({"model.norm=pots"}, {"model.norm", "pots", "did you mean \"post\"?"});
  refuses_settings({"attention.family=linaer"}, {"linaer", "linear"});
  refuses_settings({"attention.feature_map=elo"}, {"elo", "elu"});
  refuses_settings({"training.learning_rate=nan"}, {"training.learning_rate", "nan"});
  refuses_settings({"training.learning_rate=-1"}, {"training.learning_rate", "-1"});
}

TEST_F(BadConfiguration, ImpossibleShapesAreRefused) {
  refuses_settings({"model.heads=3"}, {"model.heads", "model.width", "3", "16"});
  refuses_settings({"data.length=0"}, {"length", "0"});
  refuses_settings({"model.length=0"}, {"model.length", "0"});
  refuses_settings({"model.length=17"}, {"model.length", "16", "17"});
  refuses_settings({"model.layers=0"}, {"model.layers", "0"});
  refuses_settings({"model.layers=-1"}, {"model.layers", "-1"});
  refuses_settings({"training.batch=0"}, {"training.batch", "0"});
  refuses_settings({"training.batch=-4"}, {"training.batch", "-4"});
  refuses_settings({"data.examples=0"}, {"data.examples", "0"});
  refuses_settings({"model.vocabulary=5"}, {"model.vocabulary", "11", "5"});
  refuses_settings({"model.classes=3"}, {"model.classes", "0", "3"});
  refuses_settings({"data.size=7"}, {"size", "7"}, usage, "digits");
  refuses_settings({"data.levels=1"}, {"data.levels", "1"}, usage, "digits");
  refuses_settings({"image.height=5"}, {"image.height", "5"}, usage, "digits");
  refuses_settings({"model.head=logistics", "model.tied_output=true"}, {"model.tied_output"});
}

TEST_F(BadConfiguration, SizesThatOverflowAreRefused) {
  refuses_settings({"model.width=99999999999999999999"}, {"model.width", "99999999999999999999"});
  refuses_settings({"model.width=131072"}, {"model.width", "131072"});
  refuses_settings({"model.width=65536", "model.heads=1024", "model.layers=1000"}, {"memory"}, failed);
  refuses_settings({"model.width=65536", "model.heads=1024", "model.layers=3"}, {"memory"}, failed);
  refuses_settings({"model.feed_forward=262144", "model.width=65536", "model.heads=64"}, {"memory"}, failed);
  refuses_settings({"data.length=1073741824"}, {"memory"}, failed);
  refuses_settings({"training.batch=1048576", "training.accumulate=1048576"}, {"memory"}, failed);
}

TEST_F(BadConfiguration, DamagedFilesAreRefused) {
  refuses_file("", {"empty"});
  refuses_file("  \n\n", {"empty"});
  refuses_file("[model]\nlayers = ", {"line 2"});
  refuses_file("[model\nlayers = 2\n", {"line 1"});
  refuses_file("\xff\xfe\x80", {"line 1"});
  refuses_file("[model]\nlayers = 1\nlayers = 2\n", {"layers"});
  refuses_file("[model]\nlayer = 2\n", {":2", "model.layer", "did you mean \"model.layers\"?"});
  refuses_file("[modell]\nlayers = 2\n", {"modell"});
  refuses_file("[model]\nlayers = \"2\"\n", {":2", "model.layers", "integer"});
  refuses_file("model = 3\n", {"model", "table"});
  refuses_file("[model]\nlayers = [1, 2]\n", {"model.layers", "a list"});
  refuses(usage, {"train", (folder_ / "none.toml").string(), "--out", (folder_ / "run").string()},
          {"none.toml", "does not exist"});
  refuses(usage, {"train", folder_.path().string(), "--out", (folder_ / "run").string()},
          {folder_.path().string()});
}

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
    refuses(failed, {"data", "copy", "--out", out, "--count", "2", "--length", "8"}, {out});
    refuses(failed, {"generate", tiny.digits(), "--count", "1", "--out", out}, {out});
    refuses(failed, {"generate", tiny.text(), "--length", "2", "--out", out}, {out});
  }
  EXPECT_EQ(folder.entries(), 0);
  refuses(usage, {"generate", LINNET_SOURCE_FOLDER "/models/digits", "--count", "1"}, {"--out"});
  // Before the first picture is drawn: so many take an hour.
  refuses(usage, {"generate", tiny.digits(), "--count", "2000000", "--out", (folder / "many.png").string()},
          {"pixels"});
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

TEST(FullDisk, StandardErrorThatCannotBeWrittenHarmsNothing) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  EXPECT_EQ(run_linnet({"train", tiny.config("copy"), "--out", run}, {.err = "/dev/full"}).status, 0);
  EXPECT_EQ(run_linnet({"train", tiny.config("copy"), "--out", run}, {.err = "/dev/full"}).status, 1);
  EXPECT_EQ(run_linnet({"trian"}, {.err = "/dev/full"}).status, 2);
}

TEST(DamagedModel, IsRefusedByEveryCommandThatReadsIt) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string run = copy_of(tiny.copy(), folder);
  for (const std::string file : {"config.json", "model.safetensors"}) {
    for_every_damage(fs::path(run) / file, [&] {
      const Ended ended = run_linnet({"inspect", run});
      EXPECT_NE(ended.status, 0);
      refuses(ended.status == usage ? usage : failed, {"inspect", run}, {run, file});
      refuses(ended.status == usage ? usage : failed, {"generate", run, "--length", "2"}, {run, file});
    });
    refuses(failed, {"evaluate", (folder / "none").string(), "--data", "copy"}, {"none", "config.json"});
  }
  succeed({"inspect", run});
}

TEST(DamagedModel, ConfigurationsThatCannotBeAreRefused) {
  const TemporaryFolder folder;
  const std::string run = copy_of(TinyModels::get().copy(), folder);
  const fs::path path = fs::path(run) / "config.json";
  const std::string good = read_file(path);
  const auto changed = [&](const std::string& from, const std::string& to, int status, const Strings& words) {
    std::string bad = good;
    const std::size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file_atomically(path, bad.replace(at, from.size(), to));
    refuses(status, {"inspect", run}, words);
  };
  changed("\"linnet\"", "\"llama\"", failed, {"config.json", "model_type"});
  changed("\"format\": 1", "\"format\": 99", failed, {"config.json", "format", "99"});
  changed("\"layers\": 1", "\"layers\": 2", failed, {"model.safetensors"});
  changed("\"layers\": 1", "\"layers\": -1", usage, {"config.json", "model.layers", "-1"});
  changed("\"layers\": 1", "\"layres\": 1", usage, {"config.json", "model.layres", "model.layers"});
  changed("\"heads\": 2", "\"heads\": 3", usage, {"model.heads", "3"});
  changed("\"width\": 16", "\"width\": 32", failed, {"model.safetensors", "32", "16"});
  changed("\"vocabulary\": 11", "\"vocabulary\": \"11\"", usage, {"config.json", "model.vocabulary"});
}

TEST(DamagedCheckpoint, IsPassedOverForTheOneBefore) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string run = copy_of(tiny.copy(), folder);
  const Strings resume = {"train", "--resume", run};
  const fs::path newest = fs::path(run) / "checkpoints/6";
  for (const std::string file : {"state.json", "optimiser.safetensors", "model.safetensors", "config.json"}) {
    for_every_damage(newest / file, [&] {
      fs::copy(run, folder / "copy", fs::copy_options::recursive);
      const Ended ended = succeed({"train", "--resume", (folder / "copy").string()});
      for (const std::string& words : {"checkpoints/6/" + file, std::string("taking an older checkpoint"),
                                       "resuming from " + (folder / "copy/checkpoints/4").string()})
        EXPECT_NE(ended.err.find(words), std::string::npos) << words << " in: " << ended.err;
      EXPECT_EQ(read_file(folder / "copy/model.safetensors"),
                read_file(fs::path(tiny.copy()) / "model.safetensors"));
      fs::remove_all(folder / "copy");
    });
  }
  fs::remove_all(fs::path(run) / "checkpoints/4");
  const std::string metrics = read_file(fs::path(run) / "metrics.jsonl");
  fs::remove(newest / "state.json");
  refuses(failed, resume, {"checkpoints/6", "state.json"});
  EXPECT_EQ(read_file(fs::path(run) / "metrics.jsonl"), metrics);
}

class DamagedData : public testing::Test {
 protected:
  DamagedData() {
    succeed({"data", "digits", "--out", mnist_, "--count", "20", "--test", "10", "--size", "8"});
  }
  Strings train(const std::string& source) const {
    return {"train", TinyModels::get().config("digits"), "--data", source,
            "--out", (folder_ / "run").string()};
  }

  TemporaryFolder folder_;
  std::string mnist_ = (folder_ / "mnist").string();
};

TEST_F(DamagedData, IdxFilesAreRefused) {
  for (const fs::directory_entry& entry : fs::directory_iterator(mnist_))
    for_every_damage(entry.path(),
                     [&] { refuses(failed, train(mnist_), {entry.path().filename().string()}); });
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  succeed(train(mnist_));
}

TEST_F(DamagedData, GzippedIdxFilesAreRefused) {
  const fs::path plain = fs::path(mnist_) / "train-images-idx3-ubyte", packed = plain.string() + ".gz";
  ASSERT_TRUE(fs::exists(plain));
  write_file_atomically(packed, gzipped(read_file(plain)));
  fs::remove(plain);
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    const std::string good = read_file(packed);
    write_file_atomically(packed, damage.change(good));
    refuses(failed, train(mnist_), {"train-images-idx3-ubyte.gz"});
    write_file_atomically(packed, good);
  }
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  succeed(train(mnist_));
}

TEST_F(DamagedData, LabelsThatDoNotFitAreRefused) {
  const fs::path labels = fs::path(mnist_) / "train-labels-idx1-ubyte";
  IdxArray array = read_idx(labels);
  array.values[3] = 10;
  write_idx(labels, array.shape, array.values);
  refuses(failed, train(mnist_), {"train-labels-idx1-ubyte", "10"});
  array.values.resize(19);
  array.shape = {19};
  write_idx(labels, array.shape, array.values);
  refuses(failed, train(mnist_), {"train-labels-idx1-ubyte", "19", "20"});
}

TEST_F(DamagedData, SourcesThatDoNotFitAreRefused) {
  const TinyModels& tiny = TinyModels::get();
  refuses(usage, train((folder_ / "none").string()), {"none", "digits"});
  fs::create_directory(folder_ / "empty");
  refuses(failed, train((folder_ / "empty").string()), {"train-images-idx3-ubyte"});
  const std::string out = (folder_ / "run").string();
  refuses(failed,
          {"train", tiny.config("text"), "--out", out, "--data", folder_.file("empty.txt", "").string()},
          {"empty.txt", "0"});
  refuses(failed,
          {"train", tiny.config("text"), "--out", out, "--data", folder_.file("short.txt", "short").string()},
          {"short.txt", "24", "5"});
  refuses(usage, {"train", tiny.config("text"), "--out", out}, {"a file of text"});
  refuses(usage, {"evaluate", tiny.text(), "--data", "digits"}, {"digits", "pixels"});
  refuses(usage, {"evaluate", tiny.digits(), "--data", "copy"}, {"model.vocabulary", "11", "8"});
  refuses(usage, {"evaluate", tiny.copy(), "--data", tiny.learnt()}, {"model.vocabulary", "256", "11"});
  refuses(usage, {"evaluate", tiny.copy(), "--data", "copy", "--attention", "softmaxx"},
          {"softmaxx", "softmax"});
  refuses(usage, {"evaluate", tiny.copy(), "--data", "copy", "--feature-map", "rellu"}, {"rellu", "relu"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(BadPrompt, IsRefused) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  refuses(failed, {"generate", tiny.text(), "--prompt-file", (folder / "none").string()}, {"none"});
  refuses(failed, {"generate", tiny.text(), "--prompt-file", folder.path().string()},
          {folder.path().string(), "folder"});
  refuses(failed, {"generate", tiny.text(), "--prompt-file", folder.file("empty", "").string()}, {"empty"});
  refuses(usage, {"generate", tiny.copy(), "--prompt", "1 2 11"}, {"0 … 10", "11"});
  refuses(usage, {"generate", tiny.copy(), "--prompt", "1 two"}, {"0 … 10", "two"});
  refuses(usage, {"generate", tiny.copy(), "--prompt", "-1"}, {"0 … 10", "-1"});
  refuses(usage, {"generate", tiny.copy(), "--prompt", "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8"}, {"16"});
  refuses(usage, {"generate", tiny.copy(), "--length", "17"}, {"16", "17"});
  refuses(usage, {"generate", tiny.copy(), "--label", "3"}, {"label", "3"});
  refuses(usage, {"generate", tiny.digits(), "--label", "12", "--out", (folder / "o.png").string()},
          {"0 … 9", "12"});
  refuses(usage, {"generate", tiny.digits(), "--label", "-1", "--out", (folder / "o.png").string()},
          {"--label", "-1"});
  refuses(usage, {"generate", tiny.digits(), "--prompt", "a", "--out", (folder / "o.png").string()},
          {"--prompt"});
  refuses(usage, {"generate", tiny.copy(), "--complete", "a.png"}, {"--complete"});
  refuses(usage, {"generate", tiny.copy(), "--out", (folder / "o.png").string()}, {"text", "o.png"});
  refuses(usage, {"generate", tiny.digits(), "--out", (folder / "o.jpg").string()}, {"FILE.png", "o.jpg"});
  refuses(failed, {"generate", tiny.text(), "--prompt-file", "-"}, {"something to continue"});
}

TEST(BadPicture, IsRefused) {
  const std::string model = TinyModels::get().digits();
  const TemporaryFolder folder;
  const std::string out = (folder / "out.png").string(), in = (folder / "in.png").string();
  const auto complete = [&](const std::string& path) -> Strings {
    return {"generate", model, "--complete", path, "--out", out};
  };
  write_png(in, {8, 8, 1, std::vector<std::uint8_t>(64, 77)});
  for_every_damage(in, [&] { refuses(failed, complete(in), {in}); });
  write_png(in, {7, 8, 1, std::vector<std::uint8_t>(56)});
  refuses(failed, complete(in), {in, "at least 8 × 8", "8 × 7"});
  write_png(in, {8, 8, 3, std::vector<std::uint8_t>(192, 5)});
  refuses(failed, complete(in), {in, "expected pictures of 1 channel (grey)", "3 channels"});
  const std::string idx = (folder / "in-idx").string();
  write_idx(idx, Shape{2, 8, 8}, std::vector<std::uint8_t>(128));
  for_every_damage(idx, [&] { refuses(failed, complete(idx), {idx}); });
  refuses(failed, joined(complete(idx), {"--count", "3"}), {idx, "3", "2"});
  write_idx(idx, Shape{2, 8, 7}, std::vector<std::uint8_t>(112));
  refuses(failed, complete(idx), {idx, "8 × 8", "8 × 7"});
  write_idx(idx, Shape{2, 8}, std::vector<std::uint8_t>(16));
  refuses(failed, complete(idx), {idx, "[2, 8]"});
  write_idx(idx, Shape{0, 8, 8}, {});
  refuses(failed, complete(idx), {idx, "0"});
  EXPECT_FALSE(fs::exists(out));
}

class BadAttention : public testing::Test {
 protected:
  /// A file of tensors of zeros.
  std::string file(const std::vector<std::pair<std::string, Shape>>& shapes, DType type = DType::f32) {
    const std::vector<double> zeros(4096);
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape] : shapes) tensors.push_back({name, type, shape, zeros.data()});
    write_safetensors(folder_ / "in.safetensors", tensors, {});
    return (folder_ / "in.safetensors").string();
  }
  void refuses_file(int status, const std::string& path, const Strings& options, const Strings& words) {
    refuses(status, joined({"attend", path, "--out", out_}, options), words);
    EXPECT_FALSE(fs::exists(out_));
  }

  TemporaryFolder folder_;
  std::string out_ = (folder_ / "out.safetensors").string();
  const std::vector<std::pair<std::string, Shape>> good_ = {
      {"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}, {"v", {2, 5, 2, 3}}, {"grad_out", {2, 5, 2, 3}}};
};

TEST_F(BadAttention, DamagedFilesAreRefused) {
  const std::string path = file(good_);
  for_every_damage(path, [&] { refuses_file(failed, path, {}, {path}); });
  std::string huge(64, '\0');
  for (int i = 0; i < 8; ++i) huge[i] = '\x7f';
  write_file_atomically(path, huge);
  refuses_file(failed, path, {}, {path});
}

TEST_F(BadAttention, ShapesThatDoNotMatchAreRefused) {
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}}), {}, {"v", "in.safetensors"});
  refuses_file(failed, file(good_, DType::f64), {}, {"q", "f32", "f64"});
  refuses_file(failed, file({{"q", {5, 2, 4}}, {"k", {5, 2, 4}}, {"v", {5, 2, 4}}}), {}, {"q", "[5, 2, 4]"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 3}}, {"v", {2, 5, 2, 3}}}), {}, {"4", "3"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}, {"v", {2, 6, 2, 3}}}), {}, {"5", "6"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {3, 5, 2, 4}}, {"v", {3, 5, 2, 3}}}), {}, {"2", "3"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 1, 4}}, {"v", {2, 5, 1, 3}}}), {}, {"2", "1"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 7, 2, 4}}, {"v", {2, 7, 2, 3}}}),
               {"--mask", "causal"}, {"causal", "5", "7"});
  refuses_file(failed, file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}, {"v", {2, 5, 2, 3}}}), {"--gradients"},
               {"grad_out"});
  refuses_file(
      failed,
      file({{"q", {2, 5, 2, 4}}, {"k", {2, 5, 2, 4}}, {"v", {2, 5, 2, 3}}, {"grad_out", {2, 5, 2, 4}}}),
      {"--gradients"}, {"[2, 5, 2, 4]", "[2, 5, 2, 3]"});
}

TEST_F(BadAttention, OptionsThatDoNotFitAreRefused) {
  const std::string path = file(good_);
  refuses_file(failed, path, {"--key-lengths", "5"}, {"key length", "2", "1"});
  refuses_file(failed, path, {"--key-lengths", "5,6"}, {"key length", "5", "6"});
  refuses_file(usage, path, {"--key-lengths", "5,-1"}, {"--key-lengths", "-1"});
  refuses_file(usage, path, {"--key-lengths", "5,x"}, {"--key-lengths", "x"});
  refuses_file(usage, path, {"--family", "lineer"}, {"lineer", "linear"});
  refuses_file(usage, path, {"--compare", "sofmax"}, {"sofmax", "softmax"});
  refuses_file(usage, path, {"--feature-map", "favour"}, {"favour"});
  refuses_file(usage, path, {"--normalise", "no"}, {"--normalise", "no"});
  refuses_file(usage, path, {"--epsilon", "nan"}, {"epsilon", "nan"});
  refuses_file(usage, path, {"--epsilon", "-1"}, {"epsilon", "-1"});
  refuses_file(usage, path, {"--alpha", "0"}, {"alpha", "0"});
  refuses_file(usage, path, {"--alpha", "nan"}, {"alpha", "nan"});
  refuses_file(usage, path, {"--scale", "inf", "--family", "softmax"}, {"scale", "inf"});
}

TEST(BadNames, ThatAreTooLongForTheSystemAreASentenceInEveryCommand) {
  const TinyModels& tiny = TinyModels::get();
  const std::string name(5000, 'n');
  for (const Strings& command :
       std::vector<Strings>{{"plot", name, "--out", "x.svg"},
                            {"inspect", name + "/m"},
                            {"train", "--resume", name},
                            {"evaluate", tiny.copy(), "--data", name},
                            {"convert", tiny.copy(), "--cache", "bf16", "--out", name},
                            {"bench", "train", "--config", name}}) {
    const Ended ended = run_linnet(command);
    EXPECT_EQ(lines_of(ended.err).size(), 1u);
    EXPECT_TRUE(ended.err.starts_with("linnet: [")) << ended.err;
    EXPECT_NE(ended.err.find("File name too long"), std::string::npos) << ended.err;
  }
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

TEST(BadOptions, WithoutAUseAreRefused) {
  const TinyModels& tiny = TinyModels::get();
  refuses(usage, {"evaluate", tiny.text(), "--feature-map", "relu"}, {"--feature-map", "linear", "softmax"});
  refuses(usage, {"evaluate", tiny.digits(), "--data", "digits", "--target", "x"}, {"--target", "digits"});
  refuses(usage, {"approximate", "--qkv", "f", "--dim", "8"}, {"--dim", "--qkv"});
  for (const Strings& option : {Strings{"--streams", "3"}, Strings{"--no-cache"}}) {
    refuses(usage, joined({"bench", "generate", "--position", "4"}, option), {"--position", option.front()});
    refuses(usage, joined({"bench", "generate", "--real-time"}, option), {"--real-time", option.front()});
  }
  refuses(usage, {"bench", "generate", "--steps", "9"}, {"--steps", "--real-time"});
  refuses(usage, {"forecast", "run", "--show", "9"}, {"--show", "--plot"});
  for (const char* option : {"--prompt-file", "--out", "--source", "--states"})
    refuses(usage, {"generate", tiny.text(), option, ""}, {option, "an empty one"});
  succeed({"generate", tiny.text(), "--prompt", "", "--length", "1"});
}

TEST(BadBench, ModelsThatCannotBeMeasuredAreRefusedBeforeAnythingIs) {
  for (const char* command : {"train", "generate"})
    refuses(usage, {"bench", command, "--config", TinyModels::get().config("digits") + ",series"},
            {"real numbers"});
  // Only linear attention has the decay of the configuration.
  const Strings small = {"--config", "stream", "--family",       "softmax,linear", "--seconds",
                         "0.001",    "--set",  "model.layers=1", "data.length=8",  "--json"};
  EXPECT_EQ(json_of(succeed(joined({"bench", "train", "--batch", "2"}, small))).size(), 2u);
  EXPECT_EQ(json_of(succeed(joined({"bench", "generate", "--streams", "1"}, small))).size(), 2u);
}

TEST(BadBench, SizesNearTheLargestNumbersDoNotWrap) {
  const std::string most = "9223372036854775807";
  const Strings attention = {"bench", "attention", "--family", "linear", "--pass", "forward"};
  const Json row = json_of(succeed(joined(attention, {"--mask", "intervals", "--window", most + "," + most,
                                                      "--length", "64", "--seconds", "0.001", "--json"})))[0];
  EXPECT_EQ(row["mask"], "intervals");
  refuses(failed, joined(attention, {"--batch", "1099511627776", "--length", "1099511627776"}), {"[memory]"});
}

TEST(BadBench, ListsAreRefusedBeforeAnythingIsMeasured) {
  for (const std::string list :
       {"16,,32", "a", "64:", ":64", "0", "-5", "512:64", "1.5", "16;32", "99999999999999999999"})
    refuses(usage, {"bench", "attention", "--length", list}, {"--length", list});
  refuses(usage, {"bench", "attention", "--family", "linear,sofmax"}, {"sofmax", "softmax"});
  refuses(usage, {"bench", "attention", "--feature-map", "elo"}, {"elo", "elu"});
  refuses(usage, {"bench", "attention", "--pass", "backward"}, {"--pass", "backward"});
  refuses(usage, {"bench", "attention", "--threads", "0"}, {"--threads", "0"});
  refuses(usage, {"bench", "attention", "--seconds", "0"}, {"--seconds", "0"});
  refuses(usage, {"bench", "attention", "--seconds", "nan"}, {"--seconds", "nan"});
  refuses(usage, {"bench", "generate", "--streams", "1,x"}, {"--streams", "1,x"});
  refuses(usage, {"bench", "generate", "--config", "nothing"}, {"nothing", "paper-mnist"});
  refuses(usage, {"bench", "generate", "--plot", "x.svg"}, {"--position", "--plot"});
  refuses(usage, {"bench", "generate", "--family", "linaer"}, {"linaer", "linear"});
  refuses(usage, {"bench", "train", "--batch", "two"}, {"--batch", "two"});
  refuses(usage, {"bench", "train", "--set", "model.widht=3"}, {"model.widht", "model.width"});
}

TEST(BadData, SizesAreRefused) {
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string();
  refuses(usage, {"data", "digits", "--out", out, "--size", "7"}, {"--size", "7", "8"});
  refuses(usage, {"data", "digits", "--out", out, "--count", "0"}, {"--count", "0"});
  refuses(usage, {"data", "digits", "--out", out, "--count", "99999999999"}, {"99999999999"});
  refuses(usage, {"data", "copy", "--out", out, "--length", "3"}, {"--length", "3"});
  refuses(usage, {"data", "copy", "--out", out, "--length", "1048576", "--count", "1048576"}, {"1048576"});
  refuses(usage, {"data", "copy", "--out", out, "--seed", "-1"}, {"--seed", "-1"});
  EXPECT_EQ(folder.entries(), 0);
}

}  // namespace
}  // namespace linnet
