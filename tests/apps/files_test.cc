// What the program does with the files that it is given: it never destroys one, and never leaves half of one.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/json.h"
#include "io/png.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

class Outputs : public testing::Test {
 protected:
  /// A file of queries, keys and values.
  std::string inputs() const {
    const std::vector<float> numbers(2 * 5 * 2 * 4, 0.5f);
    std::vector<NamedTensor> tensors;
    for (const char* name : {"q", "k", "v"})
      tensors.push_back({name, DType::f32, {2, 5, 2, 4}, numbers.data()});
    write_safetensors(folder_ / "in", tensors, {});
    return (folder_ / "in").string();
  }

  /// The command is refused, and `file` is as it was.
  void expect_kept(const fs::path& file, const Strings& arguments, const Strings& words) const {
    const std::string before = read_file(file);
    refuses(usage, arguments, joined({"another file"}, words));
    EXPECT_TRUE(read_file(file) == before) << file;
  }

  TemporaryFolder folder_;
};

TEST_F(Outputs, AreNotTheInputUnderAnyNameOfIt) {
  const std::string in = inputs();
  fs::create_symlink("in", folder_ / "link");
  fs::create_hard_link(in, folder_ / "hard");
  for (const std::string& out :
       {in, (folder_ / "./in").string(), (folder_ / "link").string(), (folder_ / "hard").string(),
        (folder_.path() / ".." / folder_.path().filename() / "in").string()})
    expect_kept(in, {"attend", in, "--out", out}, {"--out", out});
  expect_kept(in, {"attend", (folder_ / "link").string(), "--out", in}, {"--out"});
  expect_kept(in, {"approximate", "--qkv", in, "--plot", in}, {"--qkv", "--plot"});
  succeed({"attend", in, "--out", (folder_ / "out").string()});
  succeed({"attend", in, "--out", (folder_ / "out").string()});  // an earlier result is replaced
}

TEST_F(Outputs, AreNoFileOfAModelOrARun) {
  const TinyModels& tiny = TinyModels::get();
  fs::copy(tiny.copy(), folder_ / "run", fs::copy_options::recursive);
  const std::string run = (folder_ / "run").string();
  for (const std::string name : {"model.safetensors", "config.json"}) {
    const std::string file = run + "/" + name;
    expect_kept(file, {"evaluate", run, "--data", "copy", "--per-token", file}, {"--per-token", name});
    expect_kept(file, {"embed", run, "--data", "copy", "--out", file}, {"--out", name});
    expect_kept(file, {"generate", run, "--out", file}, {"--out", name});
  }
  expect_kept(run + "/metrics.jsonl", {"plot", run, "--out", run + "/metrics.jsonl"}, {"--out"});
  expect_kept(tiny.learnt(), {"evaluate", tiny.text(), "--data", tiny.learnt(), "--per-token", tiny.learnt()},
              {"--data"});
}

TEST_F(Outputs, AreNoFileBelowARunNorItsData) {
  const TinyModels& tiny = TinyModels::get();
  fs::copy(tiny.text(), folder_ / "run", fs::copy_options::recursive);
  const std::string run = (folder_ / "run").string();
  for (const std::string& model : {run, run + "/checkpoints/6"}) {
    const Strings generate = {"generate", model, "--length", "2", "--out"};
    for (const std::string name :
         {"run.toml", "metrics.jsonl", "checkpoints/6/config.json", "best/evaluation.json"})
      expect_kept(run + "/" + name, joined(generate, {run + "/" + name}), {"--out", name});
    const std::string weights = run + "/checkpoints/6/model.safetensors";
    expect_kept(weights, {"evaluate", model, "--per-token", weights}, {"--per-token"});
    for (const std::string name : {"labels.json", "tokenizer.model", "columns.json"}) {
      refuses(usage, joined(generate, {run + "/" + name}), {"another file", name});
      EXPECT_FALSE(fs::exists(run + "/" + name));
    }
    expect_kept(tiny.learnt(), joined(generate, {tiny.learnt()}), {"the run's data", "--out"});
    for (int i = 0; i < 2; ++i)  // also in place of an earlier result
      for (const std::string name : {"new.txt", "samples/new.txt"})
        succeed(joined(generate, {run + "/" + name}));
  }
}

TEST_F(Outputs, AreNoFileOfAFolderOfData) {
  const std::string run = (folder_ / "run").string(), data = (folder_ / "images").string();
  for (const char* label : {"a", "b"}) {
    fs::create_directories(folder_ / "images" / label);
    for (int i = 0; i < 10; ++i)
      write_png(folder_ / "images" / label / (std::to_string(i) + ".png"),
                {8, 8, 1, std::vector<std::uint8_t>(64, 20)});
  }
  succeed({"train", TinyModels::get().config("digits"), "--data", data, "--out", run, "--set",
           "data.kind=images", "training.steps=1", "model.objective=classify"});
  const std::string image = data + "/a/3.png", labels = data + "/labels.csv";
  expect_kept(image, {"classify", run, "--out", image}, {"the run's data", "--out"});
  expect_kept(image, {"classify", run, "--data", data, "--out", image}, {"--out", "3.png"});
  for (int i = 0; i < 2; ++i) succeed({"classify", run, "--data", data, "--out", labels});
}

TEST_F(Outputs, ThatCannotBeWrittenAreRefusedBeforeTheWork) {
  // Longer than any name may be: the model, which is damaged, is not looked at.
  fs::create_directory(folder_ / "run");
  const std::string run = (folder_ / "run").string(), name = std::string(300, 'x') + ".png";
  folder_.file("run/config.json", "damaged");
  refuses(failed, {"generate", run, "--out", (folder_ / name).string()}, {"[output] cannot write", name});
  if (geteuid() == 0) return;  // may write everywhere
  fs::create_directory(folder_ / "closed");
  fs::permissions(folder_ / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  const std::string out = (folder_ / "closed/out.png").string();
  refuses(failed, {"generate", run, "--out", out}, {"[output] cannot write", out});
}

TEST_F(Outputs, AreNoTwoTimesTheSameNorTheStreamsThatGoOn) {
  const TinyModels& tiny = TinyModels::get();
  const std::string states = (folder_ / "states").string(), picture = (folder_ / "new.png").string();
  const Strings begin = {"generate", tiny.digits(), "--count", "2", "--steps", "9"};
  refuses(usage, joined(begin, {"--save-states", picture, "--out", (folder_ / "./new.png").string()}),
          {"--out", "--save-states"});
  EXPECT_EQ(folder_.entries(), 0);
  succeed(joined(begin, {"--save-states", states}));
  expect_kept(states, {"generate", tiny.digits(), "--states", states, "--out", states},
              {"--states", "--out"});
  expect_kept(states,
              {"generate", tiny.digits(), "--states", states, "--steps", "1", "--save-states", states},
              {"--states", "--save-states"});
  const std::string prompt = folder_.file("prompt", "the quick").string();
  expect_kept(prompt, {"generate", tiny.text(), "--prompt-file", prompt, "--length", "2", "--out", prompt},
              {"--prompt-file"});
  succeed({"generate", tiny.digits(), "--states", states, "--out", "/dev/null", "--steps", "1",
           "--save-states", "/dev/null"});  // keeps nothing
}

TEST_F(Outputs, WithNamesThatAreNotUtf8AreShownAsJson) {
  const std::string out = (folder_ / "out\xff.safetensors").string();
  const Ended ended = succeed({"attend", inputs(), "--out", out, "--json"});
  EXPECT_TRUE(fs::exists(out));
  EXPECT_NE(parse_json(ended.out, "output")["out"].get<std::string>().find("out\uFFFD.safetensors"),
            std::string::npos);
}

TEST(Convert, KilledAtAnyMomentLeavesNothingOrAWholeModel) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string out = (folder / "models/narrow").string();
  const Strings command = {"convert", tiny.copy(), "--weights", "bf16", "--out", out};
  const auto start = std::chrono::steady_clock::now();
  succeed(command);
  std::uniform_real_distribution<double> delay(
      0, 1.2 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  int killed = 0;
  for (int i = 0; i < 40 || (killed == 0 && i < 400); ++i) {
    fs::remove_all(out);
    {
      Program program(command);
      std::this_thread::sleep_for(std::chrono::duration<double>(delay(random)));
      program.send(SIGKILL);
      killed += program.wait().signal == SIGKILL;
    }
    if (fs::exists(out)) {
      succeed({"inspect", out});
    } else {
      succeed(command);  // what was left does not stand in the way
    }
  }
  EXPECT_GT(killed, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "models"), {}), 1) << "something was left";
}

/// A copy of the copy task's run whose head has these weights.
class HeadWeights : public testing::Test {
 protected:
  std::string model_of(float weight) const {
    fs::copy(TinyModels::get().copy(), folder_ / "run",
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    const fs::path path = folder_ / "run/model.safetensors";
    const Safetensors file = Safetensors::read(path);
    std::vector<Tensor> kept;
    std::vector<NamedTensor> tensors;
    for (const std::string& name : file.names()) {
      Tensor& tensor = kept.emplace_back(file.tensor(name));
      if (name == "head.weight")
        for (std::size_t i = 0; i < tensor.span<float>().size(); ++i)
          tensor.span<float>()[i] = i % 2 ? weight : -weight;
      tensors.push_back({name, tensor.dtype(), tensor.shape(), tensor.raw()});
    }
    write_safetensors(path, tensors, {});
    return (folder_ / "run").string();
  }
  TemporaryFolder folder_;
};

TEST_F(HeadWeights, ThatAreNotFiniteAreRefusedByEveryCommand) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::string run = model_of(bad), out = (folder_ / "out").string();
    for (const Strings& command : std::vector<Strings>{{"evaluate", run, "--data", "copy"},
                                                       {"generate", run, "--length", "3"},
                                                       {"inspect", run},
                                                       {"convert", run, "--weights", "int8", "--out", out}})
      refuses(failed, command, {"finite", "head.weight", "model.safetensors"});
    EXPECT_FALSE(fs::exists(out));
  }
}

TEST_F(HeadWeights, WhoseLossIsNotFiniteFailTheEvaluation) {
  // Finite themselves, but the logits overflow.
  refuses(failed, {"evaluate", model_of(3e38f), "--data", "copy", "--examples", "4"},
          {"finite loss", "examples 0"});
}

TEST(BadLine, SeedsThatWouldWrapAreRefused) {
  for (const std::string seed : {"-1", "99999999999999999999999", "1.5", "0x10"}) {
    refuses(usage, {"generate", "m", "--seed", seed}, {"--seed", seed});
    refuses(usage, {"approximate", "--seed", seed}, {"--seed", seed});
    refuses(usage, {"attend", "in", "--out", "out", "--seed", seed}, {"--seed", seed});
  }
}

TEST(FullDisk, HelpThatCannotBeWrittenIsAFailure) {
  for (const Strings& words : std::vector<Strings>{{"--help"}, {"train", "--help"}, {"--version"}}) {
    const Ended ended = run_linnet(words, {.out = "/dev/full"});
    EXPECT_EQ(ended.status, 1) << ended.signal;
    EXPECT_NE(ended.err.find("standard output"), std::string::npos) << ended.err;
  }
}

TEST(EndlessInput, IsRefused) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  fs::copy(tiny.copy(), folder / "run", fs::copy_options::recursive);
  const std::string run = (folder / "run").string();
  for (const std::string name : {"model.safetensors", "config.json"}) {
    fs::rename(folder / "run" / name, folder / "kept");
    fs::create_symlink("/dev/zero", folder / "run" / name);
    refuses(failed, {"inspect", run}, {name, name == "config.json" ? "pipe or device" : "expected at most"});
    fs::remove(folder / "run" / name);
    fs::rename(folder / "kept", folder / "run" / name);
  }
  refuses(failed, {"generate", tiny.text(), "--prompt-file", "/dev/zero"}, {"/dev/zero", "at most"});
}

TEST(EndlessInput, OfAFileWithoutBytesOnTheDiskIsRefused) {
  const TemporaryFolder folder;
  std::error_code error;
  fs::resize_file(folder.file("sparse", ""), std::uintmax_t{1} << 42, error);  // no memory has that size
  if (error) GTEST_SKIP() << "expected a file system with sparse files of 4 TiB: " << error.message();
  fs::copy(TinyModels::get().copy(), folder / "run", fs::copy_options::recursive);
  for (const std::string name : {"model.safetensors", "config.json"}) {
    fs::rename(folder / "run" / name, folder / "kept");
    fs::create_symlink(folder / "sparse", folder / "run" / name);
    refuses(failed, {"inspect", (folder / "run").string()}, {name});
    fs::remove(folder / "run" / name);
    fs::rename(folder / "kept", folder / "run" / name);
  }
}

}  // namespace
}  // namespace linnet
