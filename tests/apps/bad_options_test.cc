// Options, settings and configurations that are refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

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

TEST(BadOptions, WithoutAUseAreRefused) {
  const TinyModels& tiny = TinyModels::get();
  refuses(usage, {"evaluate", tiny.text(), "--feature-map", "relu"}, {"--feature-map", "linear", "softmax"});
  refuses(usage, {"evaluate", tiny.digits(), "--data", "digits", "--target", "x"}, {"--target", "digits"});
  refuses(usage, {"approximate", "--qkv", "f", "--dim", "8"}, {"--dim", "--qkv"});
  for (const Strings& option :
       {Strings{"--streams", "3"}, Strings{"--no-cache"}, Strings{"--seconds", "2"}}) {
    refuses(usage, joined({"bench", "generate", "--position", "4"}, option), {"--position", option.front()});
    refuses(usage, joined({"bench", "generate", "--real-time"}, option), {"--real-time", option.front()});
  }
  refuses(usage, {"bench", "generate", "--steps", "9"}, {"--steps", "--real-time"});
  refuses(usage, {"bench", "generate", "--config", tiny.config("copy"), "--family", "linear", "--no-cache"},
          {"--family softmax", "--no-cache", "linear"});
  refuses(usage, {"bench", "attention", "--pass", "step", "--longest", "9"}, {"--pass", "--longest"});
  refuses(usage, {"inspect", tiny.copy(), "--ranks", "2", "--rate", "9", "--threads", "1"},
          {"--rate", "--threads"});
  refuses(usage, {"forecast", "run", "--show", "9"}, {"--show", "--plot"});
  refuses(usage, {"generate", tiny.digits(), "--columns", "2", "--steps", "1", "--save-states", "s"},
          {"--columns", "--out"});
  for (const char* option : {"--prompt-file", "--out", "--source", "--states"})
    refuses(usage, {"generate", tiny.text(), option, ""}, {option, "an empty one"});
  succeed({"generate", tiny.text(), "--prompt", "", "--length", "1"});
}

TEST(BadOptions, OfAnAttentionWithoutAUseAreRefused) {
  const auto refuses_both = [](const Strings& options, const Strings& words) {
    refuses(usage, joined({"attend", "in.safetensors", "--out", "o"}, options), words);
    refuses(usage, joined({"bench", "attention"}, options), words);
  };
  refuses_both({"--family", "linear", "--seed", "3"}, {"random feature map", "--seed", "elu"});
  refuses_both({"--normalise", "none", "--epsilon", "0.1"}, {"--normalise sum", "--epsilon", "none"});
  refuses_both({"--feature-map", "favor", "--epsilon", "0.1"}, {"log-scales", "--epsilon", "favor"});
  refuses(usage,
          {"attend", "in.safetensors", "--out", "o", "--family", "softmax", "--state-sums", "compensated"},
          {"--family linear", "--state-sums", "softmax"});
  succeed({"bench", "attention", "--family", "linear,lsh", "--feature-map", "user,favor", "--epsilon", "0.1",
           "--seed", "3", "--length", "16", "--pass", "forward", "--seconds", "0.001"});
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
       {"16,,32", "16,", "a", "64:", ":64", "0", "-5", "512:64", "1.5", "16;32", "99999999999999999999"})
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
