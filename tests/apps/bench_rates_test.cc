#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "apps/bench_rows.h"
#include "apps/program.h"
#include "apps/tiny_models.h"
#include "base/sanitizers.h"
#include "io/file.h"
#include "io/json.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAreArray;

TEST(Bench, TrainMeasuresUpdates) {
  const Strings command = {"bench",     "train",          "--config",  TinyModels::get().config("copy"),
                           "--family",  "linear,softmax", "--batch",   "2,4",
                           "--seconds", "0.01",           "--threads", "1,2"};
  const Json rows = json_of(succeed(joined(command, {"--json"})));
  EXPECT_EQ(rows.size(), 8u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    expect_common_fields(rows[i], "train", i < 4 ? 1 : 2);
    expect_fields(rows[i], {"config", "family", "batch", "tokens_per_second", "model_flops_per_token",
                            "fraction_of_ceiling"});
    EXPECT_EQ(rows[i]["batch"], i % 2 == 0 ? 2 : 4);
#if !defined(LINNET_ADDRESS_SANITIZER) && !defined(LINNET_THREAD_SANITIZER)  // these keep freed memory
    EXPECT_LT(rows[i]["peak_memory_bytes"].get<double>(), 256 << 20);        // which the copy ceiling takes
#endif
    const double part = rows[i]["update_ms"]["min"];
    EXPECT_GT(part, 0);
    EXPECT_LT(part, rows[i]["time_ms"]["min"].get<double>());
    EXPECT_NEAR(rows[i]["tokens_per_second"].get<double>() * rows[i]["time_ms"]["median"].get<double>() / 1e3,
                16 * rows[i]["batch"].get<double>(), 1e-6);
  }
  EXPECT_THAT(succeed(command).out, HasSubstr("fraction_of_ceiling"));
}

TEST(Bench, TrainComparesThePrecisionsOfItsProducts) {
  const Strings command = {"bench",     "train", "--config",  TinyModels::get().config("copy"),
                           "--batch",   "2,4",   "--seconds", "0.001",
                           "--threads", "1",     "--json",    "--precision"};
  const Json rows = json_of(succeed(joined(command, {"f32,bf16"})));
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const char* const precision = i % 2 == 0 ? "f32" : "bf16";
    EXPECT_EQ(rows[i]["dtype"], precision);
    EXPECT_EQ(rows[i]["ceiling"]["dtype"], precision);
    EXPECT_EQ(rows[i]["batch"], i < 2 ? 2 : 4);
    EXPECT_EQ(rows[i]["model_flops_per_token"], rows[0]["model_flops_per_token"]);
    const double gflops = rows[i]["gflops"], rate = rows[i]["tokens_per_second"];
    EXPECT_NEAR(gflops * 1e9 / (rate * rows[i]["model_flops_per_token"].get<double>()), 1, 1e-9);
    EXPECT_NEAR(rows[i]["fraction_of_ceiling"].get<double>() *
                    rows[i]["ceiling"]["gemm_gflops"].get<double>() / gflops,
                1, 1e-9);
  }
  // Before anything is measured.
  const Ended unknown = run_linnet(joined(command, {"f32,f16"}));
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, StartsWith("linnet: [bench] --precision"));
  EXPECT_THAT(unknown.err, HasSubstr("f16"));
}

TEST(Bench, TrainLeavesOutFamiliesThatNoModelHasUnlessNamed) {
  const Strings command = {"bench",     "train",
                           "--config",  TinyModels::get().config("copy"),
                           "--batch",   "2",
                           "--seconds", "0.01",
                           "--set",     "attention.rank=4",
                           "--json",    "--family"};
  const Ended ended = succeed(joined(command, {"all"}));
  std::set<std::string> families;
  for (const Json& row : json_of(ended)) families.insert(row["family"]);
  for (const char* family : {"linear", "softmax", "kernel", "local", "strided"})
    EXPECT_EQ(families.count(family), 1u) << family;
  EXPECT_EQ(families.count("linformer"), 0u);
  EXPECT_THAT(ended.err, HasSubstr("skipped: linformer: [model] expected"));
  const Ended named = run_linnet(joined(command, {"linformer"}));
  EXPECT_EQ(named.status, 2);
  EXPECT_THAT(named.err, HasSubstr("linformer"));
}

TEST(Bench, GenerateMeasuresStepsOfStreams) {
  const Strings command = {"bench",     "generate",  "--config",   TinyModels::get().config("digits"),
                           "--streams", "1,3",       "--no-cache", "--seconds",
                           "0.01",      "--threads", "1"};
  const Json rows = json_of(succeed(joined(command, {"--json"})));
  EXPECT_EQ(rows.size(), 6u);
  for (const Json& row : rows) {
    expect_common_fields(row, "generate", 1);
    expect_fields(row, {"config", "family", "streams", "tokens_per_second", "images_per_second", "step_ms",
                        "floor_ms", "times_floor", "state_bytes_per_stream", "weight_bytes"});
    EXPECT_THAT(keys_of(row["step_ms"]), UnorderedElementsAreArray({"p50", "p99", "p999"}));
    EXPECT_NEAR(row["images_per_second"].get<double>() * 64, row["tokens_per_second"].get<double>(),
                1e-6 * row["tokens_per_second"].get<double>());
  }
  EXPECT_THAT(succeed(command).out, HasSubstr("images_per_second"));
}

TEST(Bench, GenerateComparesWeightsAndFindsTheSlowestStep) {
  const Strings command = {"bench", "generate", "--config", "digits", "--family", "linear", "--json"};
  const Json weights = json_of(succeed(joined(
      command, {"--weights", "f32,int8", "--streams", "2", "--seconds", "0.01", "--set", "model.layers=1"})));
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(weights[0]["dtype"], "f32");
  EXPECT_EQ(weights[1]["dtype"], "int8");
  EXPECT_LT(weights[1]["weight_bytes"], weights[0]["weight_bytes"]);
  const Json slowest = json_of(succeed(joined(command, {"--real-time", "--steps", "2000"})))[0];
  EXPECT_LE(slowest["step_us"]["p50"], slowest["step_us"]["p999"]);
  EXPECT_LE(slowest["step_us"]["p999"], slowest["step_us"]["max"]);
  // A wait is as long as a usual step, or longer.
  EXPECT_GT(slowest["wait_us"]["p50"], 0.2 * slowest["step_us"]["p50"].get<double>());
  EXPECT_LE(slowest["wait_us"]["p50"], slowest["wait_us"]["max"]);
  const double difference =
      slowest["step_us"]["p999"].get<double>() - slowest["wait_us"]["p999"].get<double>();
  EXPECT_NEAR(slowest["p999_beyond_wait"].get<double>(), difference / slowest["step_us"]["p50"].get<double>(),
              1e-6);
  EXPECT_EQ(run_linnet(joined(command, {"--weights", "int4"})).status, 2);
  EXPECT_EQ(run_linnet(joined(command, {"--real-time", "--position", "64"})).status, 2);
}

TEST(Bench, GenerateMeasuresPrompts) {
  const Strings command = {"bench",     "generate", "--config",  TinyModels::get().config("digits"),
                           "--threads", "1",        "--seconds", "0.01",
                           "--prompt",  "7,100"};
  const Json rows = json_of(succeed(joined(command, {"--streams", "1,3", "--json"})));
  ASSERT_EQ(rows.size(), 8u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    expect_common_fields(row, "generate", 1);
    expect_fields(row,
                  {"config", "floor_ms", "fraction_of_ceiling", "state_bytes_per_stream", "weight_bytes"});
    EXPECT_EQ(row["family"], i < 4 ? "linear" : "softmax");
    EXPECT_EQ(row["streams"], i % 4 < 2 ? 1 : 3);
    EXPECT_EQ(row["prompt"], i % 2 == 0 ? 7 : 100);
    const double median = row["time_ms"]["median"];
    EXPECT_NEAR(row["tokens_per_second"].get<double>() * median / 1e3,
                row["streams"].get<double>() * row["prompt"].get<double>(), 1e-6);
    EXPECT_NEAR(row["times_floor"].get<double>() * row["floor_ms"].get<double>(), median, 1e-6 * median);
    EXPECT_GT(row["first_token_ms"].get<double>(), row["time_ms"]["min"].get<double>());
  }
  // A cache grows with the prompt, and the state of linear attention does not.
  EXPECT_EQ(rows[0]["state_bytes_per_stream"], rows[1]["state_bytes_per_stream"]);
  EXPECT_LT(rows[4]["state_bytes_per_stream"], rows[5]["state_bytes_per_stream"]);
  EXPECT_THAT(succeed(command).out, HasSubstr("first_token_ms"));
  for (const char* other : {"--no-cache", "--real-time", "--position=8"})
    EXPECT_EQ(run_linnet(joined(command, {other})).status, 2) << other;
}

TEST(Bench, GenerateMeasuresModelsOfFieldsAndOfPairs) {
  for (const char* config : {"music", "reverse-text"}) {
    const Strings command = {"bench",  "generate", "--config",       config,      "--family", "linear",
                             "--json", "--set",    "model.layers=1", "--threads", "1"};
    for (const Strings& options :
         std::vector<Strings>{{"--streams", "2", "--seconds", "0.01", "--set", "model.length=8"},
                              {"--prompt", "5", "--seconds", "0.01"},
                              {"--position", "5"},
                              {"--real-time", "--steps", "10"}}) {
      const Json rows = json_of(succeed(joined(command, options)));
      ASSERT_EQ(rows.size(), 1u);
      EXPECT_GT(rows[0]["state_bytes_per_stream"], 0) << rows;
    }
  }
}

TEST(Bench, GeneratePlotsAgainstThePosition) {
  const TemporaryFolder folder;
  const std::string plot = (folder / "plot.svg").string();
  const Json rows = json_of(succeed({"bench", "generate", "--config", TinyModels::get().config("digits"),
                                     "--position", "8:32", "--plot", plot, "--json"}));
  EXPECT_EQ(rows.size(), 6u);
  std::map<std::string, std::set<std::int64_t>> bytes;
  for (const Json& row : rows) bytes[row["family"]].insert(row["state_bytes_per_stream"].get<std::int64_t>());
  EXPECT_EQ(bytes["linear"].size(), 1u);
  EXPECT_EQ(bytes["softmax"].size(), 3u);
  for (const Json& row : rows)
    if (row["family"] == "softmax") {
      EXPECT_EQ(row["state_bytes_per_stream"],
                row["position"].get<std::int64_t>() * *bytes["softmax"].begin() / 8);
    }
  const std::string svg = read_file(plot);
  EXPECT_THAT(svg, StartsWith("<svg"));
  EXPECT_THAT(svg, HasSubstr("softmax with cache"));
}

TEST(Bench, ASignalEndsItBehindTheRowThatIsMeasured) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder;
    const std::string notes = folder.file("notes", "");
    Program program({"bench", "attention", "--family", "linear", "--length", "16:4096", "--pass", "forward",
                     "--seconds", "0.3", "--threads", "1", "--json"},
                    {.err = notes});
    while (lines_of(read_file(notes)).size() < 2 && !program.has_ended())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    program.send(signal);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.signal, signal);
    const Json rows = parse_json(ended.out, "output");
    EXPECT_GE(rows.size(), 2u);
    EXPECT_LT(rows.size(), 9u);
    EXPECT_THAT(read_file(notes), HasSubstr("stopping after this row"));
  }
}

/// Of all rows: repeated so often, with spreads of what was measured alone.
void expect_repeated(const Json& rows, int repeats) {
  for (const Json& row : rows) {
    EXPECT_EQ(row["repeats"], repeats);
    const Json& spread = row["spread"];
    for (const char* whole : {"bench", "threads", "peak_memory_bytes"}) EXPECT_FALSE(spread.contains(whole));
    EXPECT_THAT(keys_of(spread["time_ms"]), UnorderedElementsAreArray({"median", "min", "max"}));
    // The ceilings are measured again in every repetition.
    EXPECT_GT(spread["ceiling"]["gemm_gflops"], 0.0) << spread;
    EXPECT_GT(spread["ceiling"]["copy_gbs"], 0.0) << spread;
    EXPECT_GT(spread["time_ms"]["max"], 0.0) << spread;
    EXPECT_LE(row["time_ms"]["min"], row["time_ms"]["max"]);
    EXPECT_TRUE(row["peak_memory_bytes"].is_number_integer());
  }
}

TEST(Bench, RepeatedRowsAreMediansWithTheirSpread) {
  const std::string config = TinyModels::get().config("digits");
  const Strings repeated = {"--repeat", "3", "--seconds", "0.01"};
  const Strings generate =
      joined({"bench", "generate", "--config", config, "--family", "linear", "--streams", "1,3"}, repeated);
  const Json streams = json_of(succeed(joined(generate, {"--threads", "1,2", "--json"})));
  ASSERT_EQ(streams.size(), 4u);
  expect_repeated(streams, 3);
  for (std::size_t i = 0; i < streams.size(); ++i) {
    expect_common_fields(streams[i], "generate", i < 2 ? 1 : 2);
    EXPECT_EQ(streams[i]["streams"], i % 2 == 0 ? 1 : 3);
    EXPECT_GE(streams[i]["spread"]["times_floor"], 0.0);
  }
  EXPECT_THAT(succeed(generate).out, HasSubstr("times_floor  spread.times_floor  fraction_of_ceiling"));
  EXPECT_EQ(run_linnet({"bench", "generate", "--repeat", "0"}).status, 2);
}

TEST(Bench, RepetitionsMeasureTheRowsThatTheFirstOneChose) {
  // No call is as short as --longest: of every kind the shortest length is measured, and no other.
  const Strings command = {"bench",     "attention", "--family",  "linear,softmax", "--length",  "64:256",
                           "--seconds", "0.001",     "--longest", "1e-9",           "--threads", "1"};
  const Json rows = json_of(succeed(joined(command, {"--repeat", "2", "--json"})));
  const Json once = json_of(succeed(joined(command, {"--json"})));
  ASSERT_EQ(rows.size(), once.size());
  expect_repeated(rows, 2);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["length"], 64);
    for (const char* same : {"family", "pass", "length"}) EXPECT_EQ(rows[i][same], once[i][same]);
    EXPECT_FALSE(once[i].contains("repeats"));
    EXPECT_FALSE(once[i].contains("spread"));
  }
  EXPECT_THAT(succeed(command).out, Not(HasSubstr("spread")));
}

}  // namespace
}  // namespace linnet
