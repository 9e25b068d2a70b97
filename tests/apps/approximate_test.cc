// `approximate` on random inputs, a file and a model's layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/bench_rows.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "support/numbers.h"

namespace linnet {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Of few tokens. The size of a head is that of random inputs alone.
Strings with(const Strings& more, const std::string& features = "8,64") {
  Strings arguments = {"approximate", "--length", "40", "--features", features, "--draws", "4"};
  const auto given = [&](const char* option) { return std::ranges::find(more, option) != more.end(); };
  if (!given("--qkv") && !given("--model")) arguments = joined(arguments, {"--dim", "16"});
  return joined(arguments, more);
}

Json result_of(const Strings& arguments) { return Json::parse(succeed(with(arguments)).out); }

TEST(Approximate, MeasuresEveryCombination) {
  const Json result = result_of({"--json", "--linformer"});
  EXPECT_EQ(result["rows"].size(), 3u * 2 * 2);
  for (const Json& row : result["rows"]) {
    EXPECT_TRUE(row["directions"] == "hadamard" || row["directions"] == "independent");
    EXPECT_GT(row["predicted"].get<double>(), 0);
    for (const char* part : {"weights", "attention", "output"})
      for (const char* number : {"error", "bias", "deviation"})
        EXPECT_GE(row[part][number].get<double>(), 0) << part << number;
    if (row["map"] == "favor") {
      EXPECT_EQ(row["non_positive"], 0);
    }
  }
  EXPECT_EQ(result["ranks"].size(), 1u);  // 8; 64 is more than the 40 tokens
  const Json back = json_of(succeed(with({"--json", "--linformer", "--maps", "favor"}, "64,16")));
  ASSERT_EQ(back["ranks"].size(), 1u);
  EXPECT_EQ(back["ranks"][0]["rank"], 16);
  EXPECT_LT(result["ranks"][0]["error"].get<double>(), 0.5);
  EXPECT_EQ(result["advice"].size(), 3u);
}

TEST(Approximate, MeasuresHadamardDirections) {
  const TemporaryFolder folder;
  const std::string chart = (folder / "chart.svg").string();
  const Json result = result_of({"--json", "--maps", "favor", "--directions",
                                 "hadamard,independent,orthogonal", "--plot", chart}),
             rows = result["rows"];
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0]["directions"], "hadamard");
  EXPECT_NEAR(rows[0]["weights"]["error"].get<double>() / rows[4]["weights"]["error"].get<double>(), 1, 0.5);
  EXPECT_NE(read_file(chart).find("favor, orthogonal"), std::string::npos);
  // Advice is for the better directions, and for independent ones where there are no others.
  const Json advice = result["advice"];
  ASSERT_EQ(advice.size(), 2u);
  EXPECT_EQ(advice[0]["directions"], "hadamard");
  EXPECT_EQ(advice[1]["directions"], "orthogonal");
  EXPECT_THAT(advice[1]["text"].get<std::string>(), HasSubstr("favor with orthogonal directions: "));
  EXPECT_EQ(result_of({"--json", "--maps", "favor", "--directions", "independent"})["advice"].size(), 1u);
  refuses(usage, {"approximate", "--dim", "24", "--length", "40", "--directions", "hadamard"},
          {"a head size that is a power of two from 8 on with Hadamard directions", "got 24"});
  // By default heads have those that suit their size.
  for (const auto& [dim, directions] : {std::pair{"16", "hadamard"}, {"24", "orthogonal"}})
    EXPECT_EQ(json_of(succeed({"approximate", "--dim", dim, "--length", "40", "--features", "8", "--draws",
                               "2", "--maps", "favor", "--json"}))["rows"][0]["directions"],
              directions);
}

TEST(Approximate, AdvisesByTheNorms) {
  const Json easy = result_of({"--json", "--maps", "favor", "--norm", "0.5"})["advice"][0];
  EXPECT_EQ(easy["verdict"], "measured");
  EXPECT_LE(easy["features"].get<int>(), 64);
  // As errors fall between the last two numbers of features.
  const Json fair = json_of(succeed(
                 with({"--json", "--maps", "favor", "--deviation", "0.5", "--error", "0.03"}, "64,1024"))),
             rows = fair["rows"];
  EXPECT_EQ(fair["advice"][0]["verdict"], "foretold");
  const double first = rows[0]["output"]["error"], last = rows[1]["output"]["error"],
               slope = std::min(0.5, std::log(first / last) / std::log(16.0));
  EXPECT_NEAR(fair["advice"][0]["features"].get<double>() / (1024 * std::pow(last / 0.03, 1 / slope)), 1,
              0.06);
  const Json hard = result_of({"--json", "--maps", "favor", "--norm", "20"})["advice"][0];
  EXPECT_EQ(hard["verdict"], "beyond");
  EXPECT_THAT(hard["text"].get<std::string>(), HasSubstr("more than 1024 features"));
  EXPECT_THAT(succeed(with({"--maps", "favor", "--norm", "20"})).out, HasSubstr("favor: an error of"));
  // Norms at which trigonometric weights leave all numbers.
  const Json far = result_of({"--json", "--maps", "favor-sincos", "--norm", "100"});
  EXPECT_EQ(far["advice"][0]["verdict"], "beyond");
  // A query sees half as many keys on average.
  const auto tokens = [](const Json& advice, int per_feature) {
    return fmt::format("about {} tokens", per_feature * advice["features"].get<int>());
  };
  EXPECT_THAT(easy["text"].get<std::string>(), HasSubstr(tokens(easy, 2)));
  const Json causal =
      result_of({"--json", "--maps", "favor", "--norm", "0.5", "--mask", "causal"})["advice"][0];
  EXPECT_THAT(causal["text"].get<std::string>(), HasSubstr(tokens(causal, 4)));
}

TEST(Approximate, ReadsAFileAndDrawsAPlot) {
  const TemporaryFolder folder;
  const std::string file = (folder / "qkv.safetensors").string(), plot = (folder / "plot.svg").string();
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const auto& [name, dim] : {std::pair{"q", 8}, {"k", 8}, {"v", 3}}) {
    tensors.push_back(Tensor::of<float>({2, 12, 2, dim}));
    const std::vector<float> numbers = normals(tensors.back().size(), static_cast<std::uint64_t>(dim));
    std::ranges::copy(numbers, tensors.back().span<float>().begin());
    named.push_back({name, DType::f32, tensors.back().shape(), tensors.back().raw()});
  }
  write_safetensors(file, named, {});
  const Json result = result_of({"--json", "--qkv", file, "--mask", "causal", "--linformer", "--plot", plot});
  EXPECT_THAT(result["inputs"].get<std::string>(), HasSubstr("4 heads of 8, 12 tokens, causal"));
  EXPECT_EQ(result["ranks"].size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(plot));
  EXPECT_EQ(result_of({"--json", "--qkv", file, "--threads", "1"}), result_of({"--json", "--qkv", file}));
  // Keys opposite to all queries: every logit is −√8.
  for (std::size_t i = 0; i < 2; ++i) std::ranges::fill(tensors[i].span<float>(), i == 0 ? 1.0f : -1.0f);
  write_safetensors(file, named, {});
  EXPECT_NEAR(result_of({"--json", "--qkv", file})["norms"]["largest_logit"].get<double>(), -std::sqrt(8),
              1e-6);
  write_safetensors(file, std::vector(named.begin(), named.begin() + 2), {});
  refuses(failed, with({"--qkv", file}), {"expected a tensor v in", "got none"});
}

TEST(Approximate, ReadsALayerOfAModel) {
  const TinyModels& tiny = TinyModels::get();
  const Json result = result_of({"--json", "--model", tiny.copy(), "--data", "copy", "--examples", "2"});
  EXPECT_THAT(result["inputs"].get<std::string>(), HasSubstr("layer 0 of "));
  EXPECT_THAT(result["inputs"].get<std::string>(), HasSubstr("causal"));
  EXPECT_GT(result["norms"]["query"].get<double>(), 0);
  refuses(usage, with({"--model", tiny.copy(), "--data", "copy", "--layer", "7"}),
          {"expected --layer in 0", "got 7"});
}

TEST(Approximate, TakesTheMaskOfTheModel) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 12; ++i) text += i % 2 == 0 ? "one\taaaa\n" : "two\tbbbb\n";
  const std::string data = folder.file("lines.tsv", text), run = folder / "run",
                    config = folder.file(
                        "lines.toml",
                        "[data]\nkind = \"lines\"\nlength = 6\n"
                        "[model]\nobjective = \"classify\"\nbidirectional = true\nlayers = 1\nwidth = 16\n"
                        "heads = 2\n[training]\nsteps = 1\nbatch = 2\n");
  succeed({"train", config, "--data", data, "--out", run});
  const Json result = result_of({"--json", "--model", run, "--data", data, "--examples", "2"});
  EXPECT_THAT(result["inputs"].get<std::string>(), HasSubstr("tokens, full"));
  const Json own = result_of({"--json", "--model", run, "--examples", "2"});
  EXPECT_THAT(own["inputs"].get<std::string>(), HasSubstr(" of its run: "));
  EXPECT_EQ(own["norms"], result["norms"]);
  // It generates nothing, and so no token has a cost.
  EXPECT_TRUE(Json::parse(succeed({"inspect", run, "--json"}).out)["per_token"].empty());
  EXPECT_THAT(succeed({"inspect", run}).out, Not(HasSubstr("generated token")));
}

TEST(Approximate, BadInputIsRefused) {
  const auto one = [](Strings arguments) {
    arguments.insert(arguments.begin(), "approximate");
    return arguments;
  };
  refuses(usage, one({"--maps", "elu"}), {"expected --maps of favor", "got elu"});
  refuses(usage, one({"--features", "9", "--maps", "favor-sincos"}), {"expected an even number", "got 9"});
  refuses(usage, one({"--features", "0"}), {"[approximate]", "--features", "got 0"});
  refuses(usage, one({"--draws", "1"}), {"--draws", "got 1"});
  refuses(usage, one({"--length", "2000"}), {"expected --length of at most 1024", "got 2000"});
  refuses(usage, one({"--directions", "random"}), {"expected directions of auto", "got 'random'"});
  refuses(usage, one({"--model", "m", "--data", "d", "--qkv", "f"}), {"got both"});
  refuses(failed, one({"--qkv", "nowhere.safetensors"}), {"nowhere.safetensors"});
  refuses(usage, one({"--qkv", "f", "--layer", "5"}), {"--layer", "--model"});
  refuses(usage, one({"--qkv", "f", "--norm", "5"}), {"--norm", "--qkv"});
  refuses(usage, one({"--model", "m", "--data", "d", "--mask", "full"}), {"--mask", "--model"});
}

}  // namespace
}  // namespace linnet
