#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <regex>

#include "apps/bench_rows.h"
#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "base/sanitizers.h"
#include "data/idx.h"
#include "io/file.h"
#include "io/json.h"
#include "io/png.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "linnet/attention.h"
#include "linnet/instruction_set.h"
#include "linnet/reference.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAreArray;

TEST(Program, HelpAndVersionSucceed) {
  EXPECT_THAT(succeed({"--help"}).out, HasSubstr("train"));
  EXPECT_THAT(succeed({"--version"}).out, StartsWith("linnet 0."));
}

/// The program under LINNET_ISA.
Program::Limits with_instruction_set(const std::string& name) {
  return {.launcher = {"/usr/bin/env", "LINNET_ISA=" + name}};
}

// A terminal would obey them.
TEST(Program, PrintsNoControlCharactersOfNames) {
  for (const Ended& ended : {run_linnet({"inspect", "a\x1b[31mb"}), run_linnet({"runs", "--\x1b]0;x\a"})}) {
    EXPECT_NE(ended.status, 0);
    EXPECT_THAT(ended.err, Not(HasSubstr("\x1b")));
  }
}

TEST(Program, TakesEveryInstructionSetThatItsRefusalNames) {
  const std::string said = run_linnet({"families"}, with_instruction_set("AVX9")).err;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      said, found, std::regex("\\[LINNET_ISA\\] expected one of (.+), which this machine has, got AVX9")))
      << said;
  const Strings names = lines_of(std::regex_replace(found.str(1), std::regex(", "), "\n"));
  EXPECT_THAT(names, Contains(instruction_set()));
  EXPECT_THAT(names, Contains(AnyOf("SCALAR", "EMU128", "SSE2")));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    succeed({"families"}, with_instruction_set(name));
  }
}

// Of the models of tiny_models.h, each trained by one run of `train`.

TEST(Train, LeavesAModelMetricsSamplesAndCheckpoints) {
  const TinyModels& tiny = TinyModels::get();
  for (const std::string& run : {tiny.digits(), tiny.copy(), tiny.text()}) {
    SCOPED_TRACE(run);
    const fs::path folder = run;
    EXPECT_EQ(read_json(folder / "config.json")["model_type"], "linnet");
    EXPECT_FALSE(Safetensors::read(folder / "model.safetensors").names().empty());
    EXPECT_TRUE(fs::exists(folder / "checkpoints/6/optimiser.safetensors"));
    EXPECT_EQ(read_file(folder / "checkpoints/6/model.safetensors"), read_file(folder / "model.safetensors"));
    const std::string sample = run == tiny.digits() ? "samples/6.png" : "samples/6.txt";
    EXPECT_TRUE(fs::exists(folder / "samples" / fs::path(sample).filename())) << sample;
    int evaluations = 0;
    for (const std::string& line : lines_of(read_file(folder / "metrics.jsonl"))) {
      const Json row = parse_json(line, "metrics.jsonl");
      if (row.contains("settings")) continue;
      evaluations += row.contains("validation_bits");
      const double bits = row.contains("bits") ? row["bits"] : row["validation_bits"];
      EXPECT_GT(bits, 0);
      EXPECT_LT(bits, 12);
    }
    EXPECT_GE(evaluations, 1);
  }
  // 64 pictures of 8 × 8, seven times as large, with gaps of 2.
  const Image samples = read_png(fs::path(tiny.digits()) / "samples/6.png");
  EXPECT_EQ(samples.width, 8 * 7 * 8 + 9 * 2);
  EXPECT_EQ(samples.height, samples.width);
  EXPECT_EQ(read_json(fs::path(tiny.digits()) / "config.json")["model"]["classes"], 10);
}

TEST(Train, PrintsItsResultAsJson) {
  const TemporaryFolder folder;
  const Ended ended = succeed({"train", TinyModels::get().config("copy"), "--out", (folder / "run").string(),
                               "--json", "--set", "training.steps=2", "--threads", "1"});
  const Json result = json_of(ended);
  EXPECT_THAT(keys_of(result),
              UnorderedElementsAreArray({"out", "step", "finished", "seconds", "bits", "best_step",
                                         "best_validation_bits", "validation_bits"}));
  EXPECT_EQ(result["step"], 2);
  EXPECT_EQ(result["finished"], true);
  EXPECT_THAT(ended.err, HasSubstr("training on 200 examples"));
  EXPECT_THAT(ended.err, HasSubstr("finished after 2 steps"));
}

TEST(Train, ListsEveryKeyWithItsRange) {
  const Strings lines = lines_of(succeed({"train", "--options"}).out);
  for (const char* row :
       {"^model\\.width +integer +64 +1 … 65536 +width of the residual stream$",
        "^model\\.dropout +number +0 +0 … 0\\.95 +dropout probability",
        "^model\\.tied_output +boolean +false +true, false +use the embedding",
        "^attention\\.normalise +text +sum +sum, none +whether",
        "^data\\.kind +text +digits +digits, mnist, cifar10, images, text, bytes, copy, fasta, tokens, "
        "lines, pairs, reverse, series, sound +kind of data$",
        "^training\\.checkpoint_every +integer +[0-9]+ +1 … [0-9]+ +updates between checkpoints$"})
    EXPECT_THAT(lines, Contains(ContainsRegex(row)));
  for (const std::string& line : lines)
    EXPECT_THAT(line, ContainsRegex("^(model|attention|image|data|training)\\.[a-z0-9_]+ +"
                                    "(integer|number|boolean|text) .*[^ ]$"));
}

TEST(Train, FindsShippedConfigurationsFromAnyFolder) {
  const TemporaryFolder folder;
  const Ended ended = succeed({"train", "paper-copy", "--out", "run", "--json", "--set", "training.steps=0",
                               "--set", "model.width=16", "--set", "model.feed_forward=16"},
                              {.folder = folder.path().string()});
  EXPECT_EQ(json_of(ended)["step"], 0);
  EXPECT_TRUE(fs::exists(folder / "run/model.safetensors"));
}

TEST(Evaluate, RunsWeightsUnderRandomFeatures) {
  const TinyModels& tiny = TinyModels::get();
  const Strings favor = {"evaluate",    tiny.copy(), "--data",     "copy", "--examples", "10",
                         "--attention", "favor",     "--features", "32",   "--json"};
  const Json result = json_of(succeed(favor));
  EXPECT_EQ(result["family"], "linear");
  EXPECT_EQ(result["non_positive_denominators"], 0);
  EXPECT_EQ(json_of(succeed(favor))["bits_per_token"], result["bits_per_token"]);
  EXPECT_EQ(
      run_linnet({"evaluate", tiny.copy(), "--data", "copy", "--attention", "favor", "--feature-map", "elu"})
          .status,
      2);
  for (const char* directions : {"independent", "hadamard"})
    EXPECT_NE(json_of(succeed(joined(favor, {"--directions", directions})))["bits_per_token"],
              result["bits_per_token"]);
  refuses(usage, joined(favor, {"--directions", "diagonal"}), {"attention.directions", "diagonal"});
  refuses(usage, {"evaluate", tiny.copy(), "--data", "copy", "--directions", "independent"},
          {"random feature map with --directions", "got elu"});
}

TEST(Evaluate, RefusesANumberOfFeaturesThatNothingHas) {
  const TinyModels& tiny = TinyModels::get();
  for (const Strings& attention : {Strings{}, Strings{"--attention", "softmax"}})
    refuses(
        usage,
        joined({"evaluate", tiny.copy(), "--data", "copy", "--examples", "2", "--features", "32"}, attention),
        {"random feature map", "--features", attention.empty() ? "got elu" : "got softmax"});
}

TEST(Evaluate, TakesSettingsOfAnotherAttention) {
  const TinyModels& tiny = TinyModels::get();
  const auto bits = [&](const Strings& more) {
    return json_of(
               succeed(joined({"evaluate", tiny.text(), "--examples", "3", "--attention", "local", "--json"},
                              more)))["bits_per_token"]
        .get<double>();
  };
  const double whole = json_of(succeed(
      {"evaluate", tiny.text(), "--examples", "3", "--attention", "softmax", "--json"}))["bits_per_token"];
  EXPECT_NEAR(bits({"--set", "attention.window=100000"}), whole, 1e-5);
  EXPECT_NE(bits({"--set", "attention.window=1"}), whole);
}

TEST(Convert, WritesAModelThatPredictsTheSame) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const auto bits = [](const std::string& model) {
    return json_of(succeed(
        {"evaluate", model, "--data", "digits", "--examples", "10", "--json"}))["bits_per_token"]
        .get<double>();
  };
  const double exact = bits(tiny.digits());
  for (const auto& [type, tolerance] : {std::pair("bf16", 0.002), std::pair("int8", 0.01)}) {
    const std::string out = (folder.path() / type).string();
    succeed({"convert", tiny.digits(), "--weights", type, "--out", out});
    EXPECT_NEAR(bits(out), exact, tolerance * exact) << type;
    EXPECT_LT(std::filesystem::file_size(out + "/model.safetensors"),
              std::filesystem::file_size(std::string(tiny.digits()) + "/model.safetensors"));
    EXPECT_EQ(run_linnet({"convert", tiny.digits(), "--weights", type, "--out", out}).status, 2);
    // What is converted twice stays what it is.
    succeed({"convert", out, "--weights", type, "--out", out + "-again"});
    EXPECT_EQ(bits(out + "-again"), bits(out));
    EXPECT_EQ(
        run_linnet({"train", "digits", "--set", std::string("model.weights=") + type, "--out", out + "-run"})
            .status,
        2);
  }
}

TEST(Convert, GivesSoftmaxCachesOfBf16) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "narrow").string();
  const Ended ended = succeed({"convert", tiny.text(), "--cache", "bf16", "--out", out});
  EXPECT_THAT(ended.out, HasSubstr("keys and values of softmax are kept as bf16 (before: f32)"));
  EXPECT_EQ(parse_json(read_file(out + "/config.json"), "config.json")["attention"]["cache"], "bf16");
  EXPECT_EQ(read_file(out + "/model.safetensors"), read_file(tiny.text() + "/model.safetensors"));
  const Json wide = json_of(succeed({"inspect", tiny.text(), "--json"})),
             narrow = json_of(succeed({"inspect", out, "--json"}));
  for (std::size_t i = 0; i < wide["per_token"].size(); ++i)
    EXPECT_EQ(2 * narrow["per_token"][i]["state_bytes"].get<double>(),
              wide["per_token"][i]["state_bytes"].get<double>());
  EXPECT_EQ(succeed({"generate", out, "--prompt", "the quick", "--length", "40"}).out.size(),
            succeed({"generate", tiny.text(), "--prompt", "the quick", "--length", "40"}).out.size());

  const std::string more = (folder.path() / "more").string();
  const Ended nothing = run_linnet({"convert", tiny.text(), "--out", more}),
              linear = run_linnet({"convert", tiny.copy(), "--cache", "bf16", "--out", more});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("expected --weights or --cache, got neither"));
  EXPECT_EQ(linear.status, 2);
  EXPECT_THAT(linear.err,
              HasSubstr("expected a model with layers of softmax attention for --cache, got one"));
}

TEST(Evaluate, PrintsBitsPerplexityAndAccuracy) {
  const TinyModels& tiny = TinyModels::get();
  const std::vector<Strings> commands = {{"evaluate", tiny.copy(), "--data", "copy", "--examples", "10"},
                                         {"evaluate", tiny.digits(), "--data", "digits", "--examples", "10"},
                                         {"evaluate", tiny.text(), "--data", tiny.learnt()}};
  for (const Strings& command : commands) {
    EXPECT_THAT(succeed(command).out, HasSubstr("bits per token"));
    const Json result = json_of(succeed(joined(command, {"--json"})));
    EXPECT_THAT(
        keys_of(result),
        UnorderedElementsAreArray({"model", "family", "data", "split", "examples", "tokens", "bits_per_token",
                                   "perplexity", "accuracy", "non_positive_denominators", "seconds"}));
    EXPECT_NEAR(result["perplexity"].get<double>(), std::exp2(result["bits_per_token"].get<double>()), 1e-6);
    EXPECT_GE(result["accuracy"].get<double>(), 0);
    EXPECT_LE(result["accuracy"].get<double>(), 1);
  }
  // Every byte of the last tenth of the text counts.
  EXPECT_EQ(json_of(succeed(joined(commands[2], {"--json"})))["tokens"],
            read_file(tiny.learnt()).size() / 10);
}

TEST(Evaluate, SwapsTheAttentionUnderTheWeights) {
  const Strings command = {"evaluate", TinyModels::get().copy(), "--data", "copy", "--examples", "10",
                           "--json"};
  const Json linear = json_of(succeed(command)),
             softmax = json_of(succeed(joined(command, {"--attention", "softmax"}))),
             relu = json_of(succeed(joined(command, {"--feature-map", "relu"})));
  EXPECT_EQ(linear["family"], "linear");
  EXPECT_EQ(softmax["family"], "softmax");
  EXPECT_NE(linear["bits_per_token"], softmax["bits_per_token"]);
  EXPECT_NE(linear["bits_per_token"], relu["bits_per_token"]);
  EXPECT_NE(linear["bits_per_token"],
            json_of(succeed(joined(command, {"--split", "training"})))["bits_per_token"]);
}

/// Random q [2, 37, 3, 8], k, v [2, 37, 3, 5] and grad_out in a file, and what the reference makes of them.
class Attend : public testing::Test {
 protected:
  Attend() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<NamedTensor> named;
    for (const auto& [name, shape] : std::vector<std::pair<std::string, Shape>>{
             {"q", queries_}, {"k", queries_}, {"v", values_}, {"grad_out", values_}}) {
      Tensor tensor = Tensor::of<float>(shape), exact = Tensor::of<double>(shape);
      for (std::int64_t i = 0; i < tensor.size(); ++i)
        exact.span<double>()[i] = tensor.span<float>()[i] = normal(random);
      inputs_.push_back(std::move(tensor));
      exact_.push_back(std::move(exact));
      named.push_back({name, DType::f32, shape, inputs_.back().raw()});
    }
    write_safetensors(in_, named, {});
  }

  static double error(const Safetensors& file, const std::string& name, const Tensor& expected) {
    const Tensor found = file.tensor(name);
    EXPECT_EQ(found.shape(), expected.shape());
    double difference = 0, norm = 0;
    for (std::int64_t i = 0; i < found.size(); ++i) {
      const double e = expected.span<double>()[i], d = found.span<float>()[i] - e;
      difference += d * d;
      norm += e * e;
    }
    return std::sqrt(difference / norm);
  }

  void expect_reference(const AttentionOptions& options, const Mask& mask, const Strings& arguments) {
    const std::string out = (folder_ / "out.safetensors").string();
    succeed(joined({"attend", in_.string(), "--out", out, "--gradients"}, arguments));
    const Safetensors file = Safetensors::read(out);
    EXPECT_THAT(file.names(), UnorderedElementsAreArray({"out", "dq", "dk", "dv"}));
    Tensor expected = Tensor::of<double>(values_), dq = Tensor::of<double>(queries_),
           dk = Tensor::of<double>(queries_), dv = Tensor::of<double>(values_);
    const ReferenceInputs inputs{exact_[0].view<double>(), exact_[1].view<double>(), exact_[2].view<double>(),
                                 mask};
    reference_forward(options, expected.view<double>(), inputs);
    reference_backward(options, {dq.view<double>(), dk.view<double>(), dv.view<double>()},
                       exact_[3].view<double>(), inputs);
    EXPECT_LT(error(file, "out", expected), 1e-5);
    EXPECT_LT(error(file, "dq", dq), 1e-5);
    EXPECT_LT(error(file, "dk", dk), 1e-5);
    EXPECT_LT(error(file, "dv", dv), 1e-5);
  }

  const Shape queries_ = {2, 37, 3, 8}, values_ = {2, 37, 3, 5};
  TemporaryFolder folder_;
  fs::path in_ = folder_ / "in.safetensors";
  std::vector<Tensor> inputs_, exact_;
};

TEST_F(Attend, AgreesWithTheReference) {
  AttentionOptions linear, relu, plain, softmax, scaled;
  relu.linear.feature_map = relu_map();
  plain.linear.feature_map = identity_map();
  plain.linear.normalise = Normalise::none;
  softmax.family = Family::softmax;
  scaled.family = Family::softmax;
  scaled.scale = 0.5f;
  expect_reference(linear, Mask::full(), {});
  expect_reference(linear, Mask::causal(), {"--mask", "causal"});
  expect_reference(linear, Mask::causal().with_key_lengths({37, 20}),
                   {"--mask", "causal", "--key-lengths", "37,20"});
  expect_reference(relu, Mask::causal(), {"--mask", "causal", "--feature-map", "relu"});
  expect_reference(plain, Mask::full(), {"--feature-map", "identity", "--normalise", "none"});
  expect_reference(softmax, Mask::full().with_key_lengths({5, 37}),
                   {"--family", "softmax", "--key-lengths", "5,37"});
  expect_reference(scaled, Mask::causal(), {"--family", "softmax", "--mask", "causal", "--scale", "0.5"});
}

TEST_F(Attend, ComparesFamilies) {
  const Strings command = {"attend", in_.string(), "--out", (folder_ / "out").string(), "--compare"};
  EXPECT_THAT(succeed(joined(command, {"softmax"})).out, StartsWith("against softmax: relative error "));
  const Json same = json_of(succeed(joined(command, {"linear", "--json"})));
  EXPECT_EQ(same["compare"]["relative_error"], 0);
  const Json other = json_of(succeed(joined(command, {"softmax", "--json"})));
  EXPECT_GT(other["compare"]["relative_error"].get<double>(), 0.01);
  EXPECT_GT(other["compare"]["largest_error"].get<double>(), 0.01);
  EXPECT_THAT(keys_of(other), UnorderedElementsAreArray({"out", "family", "form", "mask", "tensors", "dtype",
                                                         "ms", "denominators", "compare"}));
}

// 2 · 37 · 3 rows. Without ε some rows of relu have no feature in common with any key.
TEST_F(Attend, CountsDenominatorsThatAreNotPositive) {
  const Strings command = {"attend", in_.string(), "--out", (folder_ / "out").string()};
  EXPECT_THAT(succeed(command).out, testing::IsEmpty());
  const Json none = json_of(succeed(joined(command, {"--json"})))["denominators"];
  EXPECT_EQ(none, (Json{{"all", 222}, {"non_positive", 0}, {"vanished", 0}}));
  const Strings waves = {"--feature-map", "favor-sincos", "--features", "4"};
  const Json negative = json_of(succeed(joined(joined(command, waves), {"--json"})))["denominators"];
  const int count = negative["non_positive"];
  EXPECT_GT(count, negative["vanished"].get<int>());
  EXPECT_THAT(succeed(joined(command, waves)).out,
              HasSubstr(std::to_string(count) + " of 222 denominators are not positive"));
  const Json zero = json_of(
      succeed(joined(command, {"--feature-map", "relu", "--epsilon", "0", "--mask", "causal", "--json"})));
  EXPECT_GT(zero["denominators"]["vanished"], 0);
  EXPECT_FALSE(json_of(succeed(joined(command, {"--family", "softmax", "--json"}))).contains("denominators"));
}

TEST(Inspect, PrintsSizesAndTheCostOfATokenAtSeveralLengths) {
  const TinyModels& tiny = TinyModels::get();
  EXPECT_THAT(succeed({"inspect", tiny.copy()}).out, HasSubstr("linear attention (elu)"));
  const Json model = json_of(succeed({"inspect", tiny.copy(), "--json"}));
  const Safetensors file = Safetensors::read(fs::path(tiny.copy()) / "model.safetensors");
  std::int64_t parameters = 0;
  for (const std::string& name : file.names()) parameters += checked_size(file.shape(name));
  EXPECT_EQ(model["parameters"], parameters);
  EXPECT_EQ(model["weight_bytes"], 4 * parameters);
  EXPECT_EQ(model["tensors"].size(), file.names().size());
  double first = 0;
  for (const Json& row : model["per_token"]) {
    const double position = row["position"];
    if (first == 0) first = row["linear_state_bytes"];
    EXPECT_EQ(row["linear_state_bytes"], first);
    // Keys and values of width 16 in one layer, f32.
    EXPECT_EQ(row["softmax_cache_bytes"], position * 2 * 16 * 4);
  }
  EXPECT_GE(model["per_token"].size(), 4u);
}

// Softmax never uses the map that a configuration names.
TEST(Inspect, LeavesOutLinearAttentionWithAnUnknownMap) {
  const TemporaryFolder folder;
  const std::string run = copy_of(TinyModels::get().text(), folder);
  std::string config = read_file(folder / "run/config.json");
  const std::size_t at = config.find("\"elu\"");
  ASSERT_NE(at, std::string::npos);
  write_file_atomically(folder / "run/config.json", config.replace(at, 5, "\"own\""));
  const Json row = json_of(succeed({"inspect", run, "--json"}))["per_token"][0];
  for (const char* key : {"linear_flops", "linear_state_bytes", "linear_bytes_moved"})
    EXPECT_TRUE(row.at(key).is_null()) << row;
  EXPECT_EQ(row["state_bytes"], row["softmax_cache_bytes"]);
  EXPECT_THAT(succeed({"inspect", run}).out, HasSubstr("softmax MFLOP"));
}

TEST(Inspect, TakesNoMoreMemoryThanLoading) {
#if defined(LINNET_ADDRESS_SANITIZER) || defined(LINNET_THREAD_SANITIZER)
  GTEST_SKIP() << "sanitizers keep memory of their own beside ours";
#endif
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  succeed({"train", "digits",
           "--out", run,
           "--set", "model.width=384",
           "--set", "model.feed_forward=1536",
           "--set", "model.layers=8",
           "--set", "training.steps=1",
           "--set", "training.batch=1",
           "--set", "training.evaluate_examples=1",
           "--set", "training.sample_every=0",
           "--set", "data.examples=10"});
  const auto file = static_cast<double>(fs::file_size(folder / "run/model.safetensors"));
  ASSERT_GT(file, 50e6);
  EXPECT_LE(succeed({"inspect", run}).peak_bytes, 1.5 * file + 40e6) << file;
}

TEST(Families, NamesAllThatTheLibraryHas) {
  const std::string text = succeed({"families"}).out;
  const Json tables = json_of(succeed({"families", "--json"}));
  EXPECT_EQ(tables["families"].size(), family_table().size());
  EXPECT_EQ(tables["feature_maps"].size(), feature_map_table().size() + random_feature_map_table().size());
  for (const FamilyInfo& row : family_table()) EXPECT_THAT(text, HasSubstr(row.name));
  for (const auto table : {feature_map_table(), random_feature_map_table()})
    for (const FeatureMapInfo& row : table) EXPECT_THAT(text, HasSubstr(row.name));
}

TEST(Data, DigitsAreReadableAndDecidedByTheSeed) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& seed) {
    succeed({"data", "digits", "--out", (folder / name).string(), "--count", "12", "--test", "5", "--size",
             "16", "--seed", seed});
    return read_idx(folder / name / "train-images-idx3-ubyte");
  };
  const IdxArray images = write("a", "1");
  EXPECT_EQ(images.shape, (Shape{12, 16, 16}));
  EXPECT_EQ(images.values, write("b", "1").values);
  EXPECT_NE(images.values, write("c", "2").values);
  EXPECT_EQ(read_idx(folder / "a/t10k-images-idx3-ubyte").shape, (Shape{5, 16, 16}));
  EXPECT_EQ(read_idx(folder / "a/train-labels-idx1-ubyte").shape, (Shape{12}));
}

TEST(Data, CopyIsReadable) {
  const TemporaryFolder folder;
  const std::string out = (folder / "copy.safetensors").string();
  succeed({"data", "copy", "--out", out, "--count", "7", "--length", "20"});
  const Safetensors file = Safetensors::read(out);
  EXPECT_EQ(file.shape("tokens"), (Shape{7, 20}));
  EXPECT_EQ(file.shape("targets"), (Shape{7, 20}));
  EXPECT_EQ(file.dtype("tokens"), DType::i32);
}

TEST(Plot, DrawsALineForEveryRun) {
  const TinyModels& tiny = TinyModels::get();
  const TemporaryFolder folder;
  const std::string picture = (folder.path() / "losses.svg").string();
  succeed({"plot", tiny.copy(), tiny.digits(), "--out", picture});
  const std::string svg = read_file(picture);
  for (const std::string& run : {tiny.copy(), tiny.digits()})
    EXPECT_THAT(svg, HasSubstr(std::filesystem::path(run).filename().string()));
  EXPECT_EQ(run_linnet({"plot", folder.path().string(), "--out", picture}).status, 2);
}

}  // namespace
}  // namespace linnet
