#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "apps/bench_rows.h"
#include "apps/refusal.h"
#include "io/file.h"
#include "io/temporary_folder.h"
#include "linnet/attention.h"
#include "linnet/instruction_set.h"

namespace linnet {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Strings small = {"bench", "attention", "--dim", "8",         "--heads",
                       "2",     "--seconds", "0.001", "--threads", "1"};

TEST(BenchAttention, MeasuresEveryCombination) {
  const Strings command = {"bench",     "attention",
                           "--family",  "linear,softmax",
                           "--length",  "16:64",
                           "--batch",   "1,2",
                           "--dim",     "8",
                           "--heads",   "2",
                           "--pass",    "forward,training",
                           "--seconds", "0.001",
                           "--threads", "1"};
  const Json rows = json_of(succeed(joined(command, {"--json"})));
  std::set<std::string> combinations;
  for (const Json& row : rows) {
    expect_common_fields(row, "attention", 1);
    expect_fields(row, {"family", "feature_map", "mask", "pass", "batch", "length", "heads", "head_dim",
                        "value_dim", "decay", "gflops", "floor_ms", "times_floor", "fraction", "tensor_bytes",
                        "working_memory_bytes"});
    combinations.insert(row["family"].dump() + row["length"].dump() + row["batch"].dump() +
                        row["pass"].dump());
    const double n = row["length"], queries = n * row["batch"].get<double>() * 2, e = 8;
    const bool training = row["pass"] == "training";
    const double flops = row["family"] == "linear" ? queries * e * e * (training ? 14 : 4)
                                                   : queries * (n + 1) / 2 * (training ? 14 * e : 4 * e);
    const double bytes = queries * 4 * 4 * e * (training ? 3 : 1);
    const double floor = 1e3 * std::max(flops / (1e9 * row["ceiling"]["gemm_gflops"].get<double>()),
                                        bytes / (1e9 * row["ceiling"]["copy_gbs"].get<double>()));
    EXPECT_NEAR(row["floor_ms"].get<double>() / floor, 1, 1e-9);
    EXPECT_NEAR(row["times_floor"].get<double>(), row["time_ms"]["median"].get<double>() / floor,
                1e-9 * row["times_floor"].get<double>());
  }
  EXPECT_EQ(rows.size(), 2u * 3 * 2 * 2);
  EXPECT_EQ(combinations.size(), rows.size());
  EXPECT_THAT(succeed(command).out, HasSubstr("GFLOP/s dense f32"));
}

TEST(BenchAttention, FloorsCountTheKeysThatMasksShow) {
  // Visible pairs of 96 queries, by hand: windows of 8 keys at most; 16 first keys for all; segments of 40,
  // 40 and 16. The widths of intervals vary between half of the window and all of it.
  const std::map<std::string, std::pair<double, double>> pairs = {
      {"full", {96 * 96, 96 * 96}},
      {"causal", {96 * 97 / 2, 96 * 97 / 2}},
      {"prefix", {96 * 97 / 2 + 16 * 15 / 2, 96 * 97 / 2 + 16 * 15 / 2}},
      {"window", {96 * 8 - 7 * 8 / 2, 96 * 8 - 7 * 8 / 2}},
      {"segments", {2 * 40 * 41 / 2 + 16 * 17 / 2, 2 * 40 * 41 / 2 + 16 * 17 / 2}},
      {"intervals", {96 * 4 - 3 * 4 / 2, 96 * 8 - 7 * 8 / 2}},
      {"boolean", {64 * 64 + 32 * 96, 64 * 64 + 32 * 96}}};
  const Json rows =
      json_of(succeed(joined(small, {"--family", "softmax", "--dtype", "f32,bf16", "--length", "96",
                                     "--window", "7,0", "--prefix", "16", "--segments", "40", "--json",
                                     "--mask", "full,causal,prefix,window,segments,intervals,boolean"})));
  std::set<Strings> measured, expected;
  for (const auto& [mask, count] : pairs)
    for (const char* dtype : {"f32", "bf16"})
      for (const char* pass : {"forward", "training"}) expected.insert({mask, dtype, pass});
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    const auto text = [&](const char* key) { return row[key].get<std::string>(); };
    measured.insert({text("mask"), text("dtype"), text("pass")});
    const bool training = row["pass"] == "training";
    const double of_pair = 2 * 8 * (training ? 14 : 4), size = row["dtype"] == "f32" ? 4 : 2;
    const double flops = row["gflops"].get<double>() * 1e6 * row["time_ms"]["median"].get<double>();
    const auto [least, most] = pairs.at(row["mask"]);
    EXPECT_GT(flops, least * of_pair * (1 - 1e-9));
    EXPECT_LT(flops, most * of_pair * (1 + 1e-9));
    const double bytes = 2.0 * 96 * 4 * 8 * size * (training ? 3 : 1);
    const double floor = 1e3 * std::max(flops / (1e9 * row["ceiling"]["gemm_gflops"].get<double>()),
                                        bytes / (1e9 * row["ceiling"]["copy_gbs"].get<double>()));
    EXPECT_NEAR(row["floor_ms"].get<double>() / floor, 1, 1e-9);
  }
  EXPECT_EQ(measured, expected);
  EXPECT_EQ(rows.size(), expected.size());
}

TEST(BenchAttention, ValuesMayHaveAnotherSizeThanKeys) {
  constexpr double e = 8, m = 20, k = 16, queries = 2 * 96;
  const Strings sizes = joined(small, {"--value-dim", "20", "--json"});
  const Json rows = json_of(succeed(joined(
      sizes, {"--family", "linear,softmax,linformer", "--mask", "full", "--length", "96", "--rank", "16"})));
  EXPECT_EQ(rows.size(), 6u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row["head_dim"], e);
    EXPECT_EQ(row["value_dim"], m);
    const bool training = row["pass"] == "training";
    const double of_query = row["family"] == "linear"    ? (training ? 14 : 4) * e * m
                            : row["family"] == "softmax" ? 96 * (training ? 8 * e + 6 * m : 2 * (e + m))
                                                         : k * (training ? 14 * e + 12 * m : 4 * (e + m));
    const double flops = queries * of_query;
    EXPECT_NEAR(row["gflops"].get<double>() * 1e6 * row["time_ms"]["median"].get<double>() / flops, 1, 1e-9);
    // Queries, keys, values and out, and the two projections of each head.
    const double floats = queries * 2 * (e + m) + (row["family"] == "linformer" ? 2 * 2 * k * 96 : 0);
    const double floor =
        1e3 * std::max(flops / (1e9 * row["ceiling"]["gemm_gflops"].get<double>()),
                       4 * floats * (training ? 3 : 1) / (1e9 * row["ceiling"]["copy_gbs"].get<double>()));
    EXPECT_NEAR(row["floor_ms"].get<double>() / floor, 1, 1e-9);
  }
  const Json step =
      json_of(succeed(joined(sizes, {"--family", "linear", "--pass", "step", "--streams", "3"})));
  ASSERT_EQ(step.size(), 1u);
  EXPECT_EQ(step[0]["value_dim"], m);
  const double floats = step[0]["state_bytes_per_stream"].get<double>() / (4 * 2 * (e * m + e));
  EXPECT_TRUE(floats == 1 || floats == 2) << floats;  // twice where sums are compensated
}

/// Family, mask and pass of rows.
std::set<Strings> kinds_of(const Json& rows) {
  std::set<Strings> kinds;
  for (const Json& row : rows) {
    const auto text = [&](const char* key) { return row[key].get<std::string>(); };
    kinds.insert({text("family"), text("mask"), text("pass")});
  }
  return kinds;
}

TEST(BenchAttention, AllFamiliesAreOneTable) {
  const Strings command = joined(small, {"--family", "all", "--mask", "causal,full", "--length", "48,96",
                                         "--rank", "64", "--chunk", "16"});
  const Ended ended = succeed(joined(command, {"--json"}));
  const Json rows = json_of(ended);
  std::set<Strings> expected;
  for (const FamilyInfo& info : family_table())
    for (const char* mask : {"causal", "full"})
      for (const char* pass : {"forward", "training"})
        if (info.name != (mask == std::string("causal") ? "linformer" : "strided"))
          expected.insert({info.name, mask, pass});
  EXPECT_EQ(kinds_of(rows), expected);
  EXPECT_EQ(rows.size(), 2 * expected.size() - 2);  // linformer's shorter length is below its rank
  for (const Json& row : rows) {
    expect_common_fields(row, "attention", 1);
    expect_fields(row, {"cost", "tokens_per_second", "working_memory_bytes"});
    EXPECT_NEAR(row["tokens_per_second"].get<double>() * row["time_ms"]["median"].get<double>(),
                1e3 * row["length"].get<double>(), 1e-6 * 1e3 * row["length"].get<double>());
  }
  for (const char* line : {"skipped: linformer: [linformer attention] expected the full mask",
                           "skipped: strided: [strided attention] expected a causal mask",
                           "skipped: linformer: [bench] expected --rank of at most --length 48"}) {
    const std::size_t at = ended.err.find(line);
    ASSERT_NE(at, std::string::npos) << line << " in: " << ended.err;
    EXPECT_EQ(ended.err.find(line, at + 1), std::string::npos) << line;
  }
  const std::string table = succeed(command).out;
  for (const FamilyInfo& info : family_table()) EXPECT_THAT(table, HasSubstr(info.training));
}

TEST(BenchAttention, FloorsOfEveryFamilyCountWhatItMultiplies) {
  // FLOPs of one head of 8 over 96 tokens, by hand: forward with 32 a pair, training with 112.
  struct Known {
    Strings options;
    double forward, training, inputs;  // inputs and out: floats a token, and floats beside the tokens
    double more = 0;
  };
  const double window = 96 * 8 - 7 * 8 / 2, strided = 32 * 33 / 2 + 64 * 32 + 32 * (1 + 2),
               chunks = 96 * 7 / 2 + (96 - 8) * 8;
  const std::vector<Known> all = {
      {{"--family", "kernel", "--similarity", "gaussian"}, 96 * 97 / 2 * 32.0, 96 * 97 / 2 * 112.0, 32},
      {{"--family", "local", "--local-window", "7"}, window * 32, window * 112, 32},
      {{"--family", "strided"}, strided * 32, strided * 112, 32},
      {{"--family", "lsh", "--buckets", "1", "--chunk", "8", "--rounds", "2"},
       2 * chunks * 32,
       2 * chunks * 112,
       24},
      {{"--family", "linformer", "--rank", "16", "--mask", "full"},
       96 * 4 * 16 * 16.0,
       96 * 16 * 26 * 8.0,
       32,
       2 * 16 * 96}};
  for (const Known& known : all) {
    for (const Json& row :
         json_of(succeed(joined(joined(small, {"--length", "96", "--json"}), known.options)))) {
      SCOPED_TRACE(row.dump());
      const bool training = row["pass"] == "training";
      const double flops = 2 * (training ? known.training : known.forward);
      EXPECT_NEAR(row["gflops"].get<double>() * 1e6 * row["time_ms"]["median"].get<double>() / flops, 1,
                  1e-9);
      const double bytes = 2 * 4 * (96 * known.inputs + known.more) * (training ? 3 : 1);
      const double floor = 1e3 * std::max(flops / (1e9 * row["ceiling"]["gemm_gflops"].get<double>()),
                                          bytes / (1e9 * row["ceiling"]["copy_gbs"].get<double>()));
      EXPECT_NEAR(row["floor_ms"].get<double>() / floor, 1, 1e-9);
    }
  }
}

TEST(BenchAttention, FamiliesThatCannotDoWhatIsAskedAreRefusedByName) {
  const auto refuses_options = [](const Strings& options, const Strings& words) {
    refuses(usage, joined({"bench", "attention", "--length", "64"}, options), words);
  };
  refuses_options({"--family", "linear,linformer", "--rank", "8"}, {"linformer", "full mask", "causal"});
  refuses_options({"--family", "strided", "--mask", "causal,full"}, {"strided", "causal", "full"});
  refuses_options({"--family", "lsh", "--mask", "window"}, {"lsh", "window"});
  refuses_options({"--family", "local", "--mask", "boolean"}, {"local", "boolean"});
  refuses_options({"--family", "linformer", "--mask", "full"}, {"--rank", "--length 64", "128"});
  refuses_options({"--family", "all", "--buckets", "3"}, {"lsh", "even", "3"});
  refuses_options({"--family", "all", "--similarity", "gausian"}, {"gausian", "did you mean gaussian?"});
  refuses_options({"--family", "linear,softmax", "--stride", "4"},
                  {"--family strided", "--stride", "linear,softmax"});
  refuses_options({"--family", "linear,all"}, {"all"});
}

TEST(BenchAttention, StepsAreHeldAgainstTheirStates) {
  const Json rows =
      json_of(succeed({"bench", "attention", "--pass", "step", "--family", "linear", "--streams", "3,40",
                       "--dim", "8,16", "--heads", "2", "--seconds", "0.001", "--threads", "1", "--json"}));
  EXPECT_EQ(rows.size(), 4u);
  for (const Json& row : rows) {
    expect_common_fields(row, "attention", 1);
    EXPECT_EQ(row["pass"], "step");
    const double e = row["head_dim"], streams = row["streams"], state = row["state_bytes_per_stream"];
    const double floats = state / (4 * 2 * (e * e + e));  // once, or twice where sums are compensated
    EXPECT_TRUE(floats == 1 || floats == 2) << floats;
    EXPECT_NEAR(row["floor_ms"].get<double>() * 1e6 * row["ceiling"]["copy_gbs"].get<double>(),
                2 * state * streams, 1e-3);
    EXPECT_NEAR(row["fraction"].get<double>() * row["times_floor"].get<double>(), 1, 1e-9);
  }
  const Ended softmax = succeed(joined(small, {"--pass", "step", "--streams", "3", "--json"}));
  EXPECT_EQ(json_of(softmax).size(), 1u);
  EXPECT_THAT(softmax.err, HasSubstr("softmax has no step"));
}

TEST(BenchAttention, MeasuresAUsersMapBesideTheBuiltInOnes) {
  const Json rows = json_of(succeed(joined(small, {"--family", "linear", "--feature-map", "elu,user",
                                                   "--length", "70", "--pass", "training", "--json"})));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["feature_map"], "elu");
  EXPECT_EQ(rows[1]["feature_map"], "user");
}

TEST(BenchAttention, NamesTheDirectionsOfRandomMaps) {
  const Json rows =
      json_of(succeed(joined(small, {"--family", "linear", "--feature-map", "elu,favor", "--directions",
                                     "independent", "--length", "70", "--pass", "forward", "--json"})));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0]["directions"].is_null());
  EXPECT_EQ(rows[1]["directions"], "independent");
}

TEST(BenchAttention, LeavesOutWhatWouldTakeTooLong) {
  const Ended ended = succeed(joined(small, {"--length", "16:64", "--longest", "0.000000001", "--json"}));
  std::set<std::string> rows;
  for (const Json& row : json_of(ended)) {
    EXPECT_EQ(row["length"], 16);
    rows.insert(row["family"].get<std::string>() + row["pass"].get<std::string>());
  }
  EXPECT_EQ(rows.size(), 4u);
  EXPECT_THAT(ended.err, HasSubstr("skipped: softmax d 8 training: causal f32 batch 1 length 64"));
}

TEST(BenchAttention, PlotsTimeAndMemoryAndNamesTheCrossing) {
  const TemporaryFolder folder;
  const std::string plot = (folder / "scaling.svg").string();
  const Strings command = joined(small, {"--length", "16:64", "--plot", plot});
  const std::string out = succeed(command).out, svg = read_file(plot);
  EXPECT_THAT(svg, StartsWith("<svg"));
  for (const char* text : {"linear, forward", "linear, training", "softmax, forward", "softmax, training",
                           "Time of one sample", "Peak memory of one sample", "sequence length N"})
    EXPECT_THAT(svg, HasSubstr(text));
  int crossings = 0;
  for (const std::string& line : lines_of(out)) {
    if (line.find(" is faster ") == std::string::npos) continue;
    ++crossings;
    EXPECT_THAT(svg, HasSubstr(line));
  }
  EXPECT_EQ(crossings, 2);
  EXPECT_EQ(json_of(succeed(joined(command, {"--json"}))).size(), 12u);
}

TEST(BenchAttention, ListsThatCannotBeAreRefusedBeforeAnythingIsMeasured) {
  const auto refuses_options = [](const Strings& options, const Strings& words) {
    refuses(usage, joined({"bench", "attention"}, options), words);
  };
  refuses_options({"--mask", "causal,casual"}, {"--mask", "casual"});
  refuses_options({"--dtype", "f16"}, {"--dtype", "f16", "bf16"});
  refuses_options({"--window", "4"}, {"--window", "two", "1"});
  refuses_options({"--window", "4,-2"}, {"--window", "-2"});
  refuses_options({"--prefix", "-1"}, {"--prefix", "-1"});
  refuses_options({"--segments", "0"}, {"--segments", "0"});
  refuses_options({"--decay", "2"}, {"--decay", "2"});
  refuses_options({"--decay", "0.9", "--mask", "causal,full"}, {"--decay", "causal", "full"});
  refuses_options({"--pass", "step", "--streams", "0"}, {"--streams", "0"});
  // Options that no row has.
  refuses_options({"--window", "3,0"}, {"--mask window or intervals", "--window", "causal"});
  refuses_options({"--mask", "full,window", "--prefix", "3"}, {"--mask prefix", "--prefix", "full,window"});
  refuses_options({"--segments", "3"}, {"--mask segments"});
  refuses_options({"--family", "softmax", "--decay", "0.9"}, {"--family linear", "--decay", "softmax"});
  refuses_options({"--family", "softmax", "--feature-map", "relu"}, {"--family linear", "--feature-map"});
  refuses_options({"--pass", "step", "--family", "softmax"}, {"--pass step", "softmax"});
  refuses_options({"--streams", "3"}, {"--pass step", "--streams", "forward,training"});
  for (const Strings& parallel : {Strings{"--mask", "full"}, Strings{"--dtype", "bf16"},
                                  Strings{"--length", "32"}, Strings{"--batch", "2"}})
    refuses_options(joined({"--family", "linear", "--pass", "step"}, parallel),
                    {"--pass forward or training", parallel.front(), "got step"});
  refuses_options({"--longest", "0"}, {"--longest", "0"});
  refuses_options({"--plot", "x.svg", "--pass", "step", "--family", "linear"}, {"--plot", "step"});
  refuses_options({"--plot", "x.svg", "--mask", "full,causal"}, {"--plot", "--mask"});
  refuses_options({"--plot", "x.svg", "--threads", "1,2"}, {"--plot", "--threads", "2"});
  refuses(failed, {"bench", "attention", "--plot", "/no/such/folder/x.svg"}, {"/no/such/folder/x.svg"});
  refuses(failed, {"bench", "attention", "--length", "1099511627776"}, {"memory", "1099511627776"});
}

/// LINNET_ISA while this lives.
class ChosenSet {
 public:
  explicit ChosenSet(const char* name) {
    if (const char* now = std::getenv("LINNET_ISA")) before_ = now;
    setenv("LINNET_ISA", name, 1);
  }
  ~ChosenSet() {
    if (before_.empty())
      unsetenv("LINNET_ISA");
    else
      setenv("LINNET_ISA", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST(InstructionSets, TheEnvironmentChoosesTheOneThatBenchNames) {
  const Strings command =
      joined(small, {"--family", "linear", "--length", "16", "--pass", "forward", "--json"});
  EXPECT_EQ(json_of(succeed(command))[0]["isa"], instruction_set());
  for (const char* name : {"SSE4", "sse4"}) {
    const ChosenSet chosen(name);
    const Ended ended = run_linnet(command);
    if (ended.status == usage) GTEST_SKIP() << ended.err;
    EXPECT_EQ(json_of(ended)[0]["isa"], "SSE4");
  }
}

TEST(InstructionSets, NamesThatNobodyKnowsAreRefused) {
  for (const char* name : {"AVX9", "avx", "SVE", "-1"}) {
    const ChosenSet chosen(name);
    refuses(usage, {"families"}, {"LINNET_ISA", name, "expected one of"});
  }
}

}  // namespace
}  // namespace linnet
