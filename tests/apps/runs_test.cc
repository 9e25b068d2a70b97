// Training runs that know what they are: run.toml, resuming, first weights, the best evaluation, the table of
// runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <thread>

#include "apps/bench_rows.h"
#include "apps/program.h"
#include "apps/refusal.h"
#include "apps/tiny_models.h"
#include "io/file.h"
#include "io/json.h"
#include "io/png.h"
#include "io/temporary_folder.h"
#include "linnet/version.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::string some_text(int variant = 0) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * 7 + variant) + " of a text\n";
  return text;
}

/// Runs of one configuration of text, with its data beside it.
class Runs : public testing::Test {
 protected:
  Runs() {
    folder_.file("text.toml", tiny_text);
    folder_.file("copy.toml", tiny_copy);
    folder_.file("data.txt", some_text());
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Strings training(const std::string& run, const Strings& more = {}) const {
    return joined({"train", path("text.toml"), "--data", path("data.txt"), "--out", path(run), "--set",
                   "training.evaluate_every=2"},
                  more);
  }
  /// Begins a run that stops after its first update.
  void begin(const std::string& run, const Strings& more = {}) const {
    succeed(training(run, joined({"--set", "training.minutes=1e-9"}, more)));
  }
  Strings resume(const std::string& run, const Strings& more = {}) const {
    return joined({"train", "--resume", path(run), "--set", "training.minutes=0"}, more);
  }
  std::string weights(const std::string& run) const { return read_file(path(run) + "/model.safetensors"); }
  std::vector<Json> metrics(const std::string& run) const {
    std::vector<Json> rows;
    for (const std::string& line : lines_of(read_file(path(run) + "/metrics.jsonl")))
      rows.push_back(parse_json(line, "metrics.jsonl"));
    return rows;
  }

  TemporaryFolder folder_;
};

TEST_F(Runs, FolderIsCompleteBeforeTheFirstUpdate) {
  succeed(training("run", {"--set", "training.steps=0"}));
  for (const char* file :
       {"run.toml", "config.json", "model.safetensors", "checkpoints/0/state.json", "metrics.jsonl"})
    EXPECT_TRUE(fs::exists(path("run") + "/" + file)) << file;
  const std::string record = read_file(path("run/run.toml"));
  for (const std::string& line :
       {"path = \"" + path("data.txt") + "\"", "bytes = " + std::to_string(some_text().size()),
        std::string("files = 1"), std::string("vocabulary = 256"), std::string("steps = 0"),
        std::string("--set training.steps=0"), "version = \"" + std::string(version()) + "\""})
    EXPECT_THAT(record, HasSubstr(line));
}

TEST_F(Runs, ResumeNeedsTheFolderAlone) {
  succeed(training("whole"));
  // A path relative to another folder than the one that resumes.
  Strings command = training("parts", {"--set", "training.minutes=1e-9"});
  *std::find(command.begin(), command.end(), path("data.txt")) = "data.txt";
  succeed(command, {.folder = folder_.path().string()});
  EXPECT_NE(weights("parts"), weights("whole"));
  fs::remove(path("text.toml"));
  succeed(resume("parts", {"--threads", "1"}), {.folder = "/"});
  EXPECT_EQ(weights("parts"), weights("whole"));
  EXPECT_THAT(read_file(path("parts/run.toml")), HasSubstr("resumed = \""));
}

TEST_F(Runs, StepsMayChangeAndTheScheduleEndsAtTheNewNumber) {
  succeed(training("long", {"--set", "training.steps=9"}));
  begin("other");
  const Ended ended = succeed(resume("other", {"--set", "training.steps=9"}));
  EXPECT_THAT(ended.err,
              HasSubstr("training.steps is now 9 instead of 6: the schedule ends at the new number"));
  EXPECT_TRUE(fs::exists(path("other/checkpoints/9")));
  EXPECT_EQ(metrics("other").back()["step"], 9);
  succeed(resume("other"));  // run.toml knows
  EXPECT_FALSE(fs::exists(path("other/checkpoints/6")));
  // The first update had the rate of another schedule; the last ones have that of the new one.
  const auto last_rate = [&](const std::string& run) {
    double rate = 0;
    for (const Json& row : metrics(run)) rate = row.value("learning_rate", rate);
    return rate;
  };
  EXPECT_DOUBLE_EQ(last_rate("other"), last_rate("long"));

  begin("shorter");
  EXPECT_THAT(succeed(resume("shorter", {"--set", "training.steps=2"})).err,
              HasSubstr("finished after 2 steps"));
  refuses(usage, resume("shorter", {"--set", "training.steps=1"}), {"training.steps", "at least 2", "got 1"});
}

TEST_F(Runs, WhatWouldTrainAnotherModelIsRefused) {
  begin("run");
  const std::string record = read_file(path("run/run.toml"));
  const auto refused = [&](const std::string& key, const std::string& value, const std::string& before) {
    refuses(usage, resume("run", {"--set", key + "=" + value}),
            {key + " = " + before, path("run"), "got " + value});
  };
  refused("training.learning_rate", "0.5", "0.001");
  refused("training.batch", "5", "4");
  refused("model.width", "32", "16");
  refused("data.length", "25", "24");
  refused("attention.family", "linear", "softmax");
  refuses(usage, resume("run", {"--data", "copy"}), {"data.kind = text", "got copy"});
  refuses(usage, resume("run", {"--set", "model.widht=1"}), {"model.widht", "model.width"});
  EXPECT_EQ(read_file(path("run/run.toml")), record);
  succeed(resume("run", {"--set", "training.log_every=3", "--set", "training.evaluate_every=3"}));
}

TEST_F(Runs, OtherDataAreRefusedAndMovedOnesAreTheSame) {
  begin("run");
  folder_.file("data.txt", some_text(1));
  refuses(usage, resume("run"), {path("data.txt"), "the data that the run began with", "CRC-32"});
  folder_.file("moved.txt", some_text());
  folder_.file("shorter.txt", some_text().substr(1));
  refuses(usage, resume("run", {"--data", path("shorter.txt")}),
          {path("shorter.txt"), std::to_string(some_text().size()), std::to_string(some_text().size() - 1)});
  succeed(resume("run", {"--data", "moved.txt"}), {.folder = folder_.path().string()});
  EXPECT_THAT(read_file(path("run/run.toml")), HasSubstr(path("moved.txt")));
  folder_.file("data.txt", some_text());
  succeed(training("whole"));
  EXPECT_EQ(weights("run"), weights("whole"));
}

TEST_F(Runs, EvaluateAndGenerateNeedNoOptions) {
  succeed(training("run"));
  const auto bits = [](const Ended& ended) { return json_of(ended)["bits_per_token"]; };
  const Json expected = bits(succeed({"evaluate", path("run"), "--data", path("data.txt"), "--json"}));
  const Json result = json_of(succeed({"evaluate", path("run"), "--json"}, {.folder = "/"}));
  EXPECT_EQ(result["bits_per_token"], expected);
  EXPECT_EQ(result["data"], path("data.txt"));
  EXPECT_EQ(bits(succeed({"evaluate", path("run/checkpoints/6"), "--json"})), expected);
  succeed({"evaluate", path("run/best/")});
  folder_.file("other.txt", some_text(3));
  EXPECT_NE(bits(succeed({"evaluate", path("run"), "--data", path("other.txt"), "--json"})), expected);
  EXPECT_FALSE(succeed({"generate", path("run")}).out.empty());

  succeed({"generate", TinyModels::get().digits(), "--count", "4"});
  EXPECT_TRUE(fs::exists(fs::path(TinyModels::get().digits()) / "samples/generated.png"));
  const std::string record = read_file(path("run/run.toml"));
  for (const std::size_t size : {std::size_t{0}, record.find("[data]"), record.find("[run]")}) {
    folder_.file("run/run.toml", record.substr(0, size));
    refuses(failed, {"evaluate", path("run")}, {path("run/run.toml"), "run.version", "damaged"});
  }
  fs::remove(path("run/run.toml"));
  refuses(usage, {"evaluate", path("run")}, {"--data", path("run")});
}

TEST_F(Runs, WithoutUpdatesThereAreNoBits) {
  const Json json = json_of(succeed(training("run", {"--set", "training.steps=0", "--json"})));
  EXPECT_TRUE(json["bits"].is_null());
}

TEST_F(Runs, WithoutItsFirstCheckpointItBeginsAgain) {
  succeed(training("whole"));
  begin("killed");
  // What a kill between run.toml and the first checkpoint leaves.
  for (const char* name : {"checkpoints", "config.json", "model.safetensors", "metrics.jsonl", "best"})
    fs::remove_all(path("killed") + "/" + name);
  EXPECT_THAT(succeed(resume("killed")).err, HasSubstr("starting from the beginning"));
  EXPECT_EQ(weights("killed"), weights("whole"));
}

TEST_F(Runs, BeginWithTheWeightsOfAModel) {
  succeed(training("first"));
  succeed(training("second", {"--init", path("first"), "--set", "training.steps=0"}));
  EXPECT_EQ(weights("second"), weights("first"));
  EXPECT_THAT(read_file(path("second/run.toml")), HasSubstr("initial = \"" + path("first") + "\""));
  refuses(usage, training("third", {"--init", path("first"), "--set", "model.layers=1"}),
          {"layers.1.", "has no place"});
  refuses(usage, training("third", {"--init", path("first"), "--set", "model.feed_forward=48"}),
          {"layers.0.", "instead of"});
  refuses(usage, training("third", {"--init-partial"}), {"--init"});
  refuses(failed, training("third", {"--init", path("none")}), {path("none")});
  EXPECT_FALSE(fs::exists(path("third")));
  const Ended partial = succeed(training(
      "third", {"--init", path("first"), "--init-partial", "--set", "model.layers=3", "--threads", "1"}));
  EXPECT_THAT(partial.err, HasSubstr("layers.2."));
  EXPECT_THAT(partial.err, HasSubstr("drawn anew"));
  EXPECT_THAT(partial.err, Not(HasSubstr("layers.1.")));
  // The first weights are in the run, which needs the model no more.
  fs::remove_all(path("first"));
  succeed(resume("third", {"--set", "training.steps=7"}));
}

TEST_F(Runs, SayWhereTheirBestModelIsUnlessItIsTheLast) {
  const Strings settings = {"--set", "training.schedule=constant", "--set", "training.steps=40"};
  const Ended worse =
      succeed(joined(training("worse", settings), {"--set", "training.learning_rate=1", "--json"}));
  const Json result = json_of(worse), best = read_json(path("worse/best/evaluation.json"));
  ASSERT_LT(best["step"], 40) << "the last evaluation is the best: the test shows nothing";
  EXPECT_EQ(result["best_step"], best["step"]);
  EXPECT_EQ(result["best_validation_bits"], best["validation_bits"]);
  EXPECT_THAT(worse.err, HasSubstr(fmt::format("best {:.4f} bits/token at step {}: {}",
                                               best["validation_bits"].get<double>(), best["step"].get<int>(),
                                               path("worse/best"))));
  EXPECT_THAT(succeed({"evaluate", path("worse")}).err,
              HasSubstr(fmt::format("that of step {} {:.4f}: its model is {}", best["step"].get<int>(),
                                    best["validation_bits"].get<double>(), path("worse/best"))));
  EXPECT_THAT(succeed({"evaluate", path("worse/best")}).err, Not(HasSubstr("its model is")));
  write_file_atomically(path("worse/metrics.jsonl"), "no metrics");
  EXPECT_THAT(succeed({"evaluate", path("worse")}).err, Not(HasSubstr("its model is")));
  EXPECT_THAT(succeed(training("better")).err, Not(HasSubstr("best")));
}

TEST_F(Runs, TableKnowsUpdatesWhoseLinesAreLost) {
  succeed(training("run"));
  const std::string lines = read_file(path("run/metrics.jsonl"));
  for (const std::string& left : {lines.substr(0, lines.find('\n') + 1), std::string()}) {
    folder_.file("run/metrics.jsonl", left);
    const Json row = json_of(succeed({"runs", path("run"), "--json"})).at(0);
    EXPECT_EQ(row["step"], 6);
    EXPECT_EQ(row["state"], "finished");
  }
}

TEST_F(Runs, TableHasALineForARunWhateverItsName) {
  const std::string name = "a\nb\x1b[31m";
  succeed(training(name));
  EXPECT_EQ(json_of(succeed({"runs", folder_.path().string(), "--json"})).at(0)["name"], name);
  const std::string table = succeed({"runs", folder_.path().string()}).out;
  EXPECT_THAT(table, HasSubstr("a b [31m"));
  EXPECT_EQ(std::ranges::count(table, '\n'), 2);
}

TEST_F(Runs, TableShowsWhatBecameOfThem) {
  succeed(training("studies/finished"));
  succeed({"train", path("copy.toml"), "--out", path("stopped"), "--set", "training.minutes=1e-9"});
  Program running(
      {"train", path("copy.toml"), "--out", path("studies/deep/running"), "--set", "training.steps=1000000"});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(path("studies/deep/running/metrics.jsonl")) && !running.has_ended() &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Json rows = json_of(succeed({"runs", folder_.path().string(), "--json"}));
  const std::string table = succeed({"runs", folder_.path().string()}).out;
  running.send(SIGKILL);
  running.wait();
  ASSERT_EQ(rows.size(), 3u);
  const Json &stopped = rows[0], &deep = rows[1], &finished = rows[2];
  EXPECT_THAT(keys_of(finished), testing::ElementsAre("name", "family", "feature_map", "parameters", "step",
                                                      "steps", "best_validation_bits", "last_validation_bits",
                                                      "tokens_per_second", "seconds", "state"));
  EXPECT_EQ(finished["name"], "studies/finished");
  EXPECT_EQ(finished["family"], "softmax");
  EXPECT_TRUE(finished["feature_map"].is_null());
  EXPECT_EQ(deep["feature_map"], "elu");
  EXPECT_THAT(table, HasSubstr("linear (elu)"));
  EXPECT_EQ(finished["step"], 6);
  EXPECT_EQ(finished["state"], "finished");
  double best = 1e9, last = 0;
  for (const Json& line : metrics("studies/finished")) {
    last = line.value("validation_bits", last);
    best = std::min(best, line.value("validation_bits", best));
  }
  EXPECT_EQ(finished["best_validation_bits"], best);
  EXPECT_EQ(finished["last_validation_bits"], last);
  std::vector<double> rates;
  for (const Json& line : metrics("studies/finished"))
    if (line.contains("tokens_per_second")) rates.push_back(line["tokens_per_second"]);
  std::ranges::sort(rates);
  EXPECT_EQ(finished["tokens_per_second"], rates[rates.size() / 2]);
  EXPECT_EQ(finished["parameters"],
            json_of(succeed({"inspect", path("studies/finished"), "--json"}))["parameters"]);
  EXPECT_EQ(stopped["state"], "stopped");
  EXPECT_EQ(stopped["step"], 1);
  EXPECT_EQ(stopped["steps"], 6);
  EXPECT_TRUE(stopped["best_validation_bits"].is_null());
  EXPECT_EQ(deep["name"], "studies/deep/running");
  EXPECT_EQ(deep["state"], "running");
  // The run that was stopped before any evaluation is the first by its name.
  const Json sorted = json_of(succeed({"runs", folder_.path().string(), "--best-first", "--json"}));
  EXPECT_TRUE(sorted[2]["best_validation_bits"].is_null());
  EXPECT_LE(sorted[0]["best_validation_bits"], finished["best_validation_bits"]);
  const Json repeated =
      json_of(succeed({"runs", folder_.path().string(), "--seeds", "--best-first", "--json"}));
  EXPECT_TRUE(repeated.back()["best_validation_bits"]["mean"].is_null());
  EXPECT_EQ(lines_of(table).size(), 4u) << table;
  EXPECT_THAT(table, HasSubstr("6/6"));
  // A run alone, one that was killed, one that cannot be read, and none.
  EXPECT_EQ(json_of(succeed({"runs", path("studies/deep/running/"), "--json"}))[0]["state"], "stopped");
  // One of C++ or Python has no record.
  fs::remove(path("studies/finished/run.toml"));
  EXPECT_EQ(json_of(succeed({"runs", folder_.path().string(), "--json"}))[2], finished);
  EXPECT_EQ(json_of(succeed({"runs", path("studies/finished"), "--json"}))[0]["step"], 6);
  refuses(usage, {"train", "--resume", path("studies/finished")}, {"run.toml", "C++ and Python"});
  write_file_atomically(path("stopped/run.toml"), "[modle]\n");
  EXPECT_EQ(json_of(succeed({"runs", path("stopped"), "--json"}))[0]["state"], "unreadable");
  fs::create_directory(path("empty"));
  EXPECT_THAT(succeed({"runs", path("empty")}).out, HasSubstr("no training runs"));
  refuses(usage, {"runs", path("none")}, {path("none")});
}

/// What a picture's axes say.
struct Axes {
  std::vector<std::string> across, up;

  /// Those of one chart of an SVG: labels below are centred, labels to the left end at their axis.
  static Axes of(const std::string& svg) {
    static const std::regex label("<text [^>]*text-anchor=\"(middle|end)\"[^>]*>([^<]*)</text>");
    Axes axes;
    for (std::sregex_iterator at(svg.begin(), svg.end(), label), none; at != none; ++at) {
      if (!std::isdigit(static_cast<unsigned char>((*at)[2].str()[0]))) continue;
      ((*at)[1] == "end" ? axes.up : axes.across).push_back((*at)[2]);
    }
    return axes;
  }
};

class Curves : public Runs {
 protected:
  /// The folder of a run with such metrics.
  std::string run(const std::string& name, const std::string& lines) const {
    fs::create_directories(path(name));
    write_file_atomically(path(name + "/metrics.jsonl"), lines);
    write_file_atomically(path(name + "/config.json"), "{}");
    return path(name);
  }
  /// `count` updates, and as many evaluations, whose loss goes from `first` to `last`.
  static std::string losses(int count, double first, double last) {
    std::string lines = "{\"version\": \"0.1.0\", \"settings\": {}}\n";
    for (int i = 1; i <= count; ++i) {
      const double bits = first + (last - first) * i / count;
      for (const char* key : {"bits", "validation_bits"})
        lines += Json{{"step", i}, {"tokens", 64 * i}, {"seconds", 0.25 * i}, {key, bits}}.dump() + "\n";
    }
    return lines;
  }
  /// The metrics of a run with such settings, of five updates, whose last evaluation is the best.
  static std::string text_of(const std::string& feature_map, int seed, int count, double last) {
    std::string text = losses(count, 9, last);
    const Json settings = {{"attention", {{"feature_map", feature_map}}},
                           {"training", {{"seed", seed}, {"steps", 5}}}};
    return text.replace(text.find("{}"), 2, settings.dump());
  }
  std::string repeat(const std::string& name, const std::string& feature_map, int seed, double last) const {
    return run(name, text_of(feature_map, seed, 5, last));
  }
  std::string drawn(const Strings& arguments) const {
    succeed(joined(joined({"plot"}, arguments), {"--out", path("plot.svg")}));
    return read_file(path("plot.svg"));
  }
};

TEST_F(Curves, RunsWithoutEvaluationsOrUpdatesAreNoFaults) {
  const std::string young = run("young", "{\"settings\": {}}\n{\"step\": 1, \"bits\": 3.5}\n"),
                    empty = run("empty", ""), whole = run("whole", losses(5, 4, 3));
  EXPECT_THAT(drawn({young}), Not(HasSubstr("Validation loss")));
  const std::string svg = drawn({young, whole, empty});
  EXPECT_THAT(svg, HasSubstr("Validation loss"));
  EXPECT_THAT(svg, Not(HasSubstr(">empty<")));
  refuses(usage, {"plot", empty, "--out", path("plot.svg")}, {empty, "losses"});
  refuses(usage, {"plot", run("header", "{\"settings\": {}}\n"), "--out", path("plot.svg")}, {"header"});
  refuses(failed, {"plot", run("odd", "{\"step\": 1}\nnonsense\n"), "--out", path("plot.svg")},
          {"odd", "line 2"});
  // A line that a run is writing at this moment.
  succeed({"plot", run("writing", losses(5, 4, 3) + "{\"step\": 6, \"bi"), "--out", path("plot.svg")});
}

TEST_F(Curves, OfSeedsHaveOneLineInTheTable) {
  repeat("a/one", "elu", 1, 3.0);
  repeat("a/two", "elu", 2, 4.0);
  repeat("b/one", "favor", 1, 2.0);
  repeat("b/three", "elu", 3, 5.0);
  run("b/fresh", text_of("exp", 1, 0, 1.0));
  run("damaged", "{\"settings\": {}}\nnonsense\n{}\n");
  const Ended ended = succeed({"runs", folder_.path().string(), "--seeds", "--differences", "--json"});
  EXPECT_THAT(ended.err, HasSubstr("damaged"));
  const Json rows = json_of(ended);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(keys_of(rows[0]),
              testing::ElementsAre("names", "family", "feature_map", "parameters", "runs", "finished",
                                   "evaluated", "best_validation_bits", "differences"));
  EXPECT_EQ(rows[0]["names"], (Json{"a/one", "a/two", "b/three"}));
  EXPECT_EQ(rows[0]["feature_map"], "elu");
  EXPECT_EQ(rows[0]["runs"], 3);
  EXPECT_EQ(rows[0]["finished"], 3);
  EXPECT_EQ(rows[0]["evaluated"], 3);
  EXPECT_EQ(rows[0]["differences"], "attention.feature_map=elu");
  const Json& bits = rows[0]["best_validation_bits"];
  EXPECT_DOUBLE_EQ(bits["mean"], 4);
  EXPECT_DOUBLE_EQ(bits["deviation"], 1);
  EXPECT_DOUBLE_EQ(bits["least"], 3);
  EXPECT_DOUBLE_EQ(bits["most"], 5);
  // One run has no deviation, and one that was not evaluated no bits.
  const Json& fresh = rows[1]["feature_map"] == "exp" ? rows[1] : rows[2];
  const Json& alone = rows[1]["feature_map"] == "exp" ? rows[2] : rows[1];
  EXPECT_EQ(alone["best_validation_bits"],
            (Json{{"mean", 2.0}, {"deviation", nullptr}, {"least", 2.0}, {"most", 2.0}}));
  EXPECT_EQ(fresh["evaluated"], 0);
  EXPECT_EQ(fresh["finished"], 0);
  EXPECT_TRUE(fresh["best_validation_bits"]["mean"].is_null());

  // Without --seeds every run has its line, and the seeds are among the differences.
  const Json single = json_of(succeed({"runs", folder_.path().string(), "--differences", "--json"}));
  ASSERT_EQ(single.size(), 6u);
  EXPECT_EQ(single[1]["name"], "a/two");
  EXPECT_EQ(single[1]["differences"], "attention.feature_map=elu training.seed=2");
  EXPECT_EQ(single[5], (Json{{"name", "damaged"}, {"state", "unreadable"}}));
  EXPECT_THAT(succeed({"runs", folder_.path().string(), "--seeds"}).out, HasSubstr("4.0000"));
}

TEST_F(Curves, OfSeedsAreDrawnWithTheirMean) {
  const std::string one = repeat("one", "elu", 1, 3.0), two = repeat("two", "elu", 2, 3.5),
                    other = repeat("other", "favor", 1, 2.0);
  const std::string svg = drawn({one, other, two, "--seeds"});
  for (const char* name : {">one, mean of 2<", ">other<"}) EXPECT_THAT(svg, HasSubstr(name));
  for (const char* name : {">two<", ">one<", "mean of 1"}) EXPECT_THAT(svg, Not(HasSubstr(name)));
  // The mean's last point lies in the middle between those of its two runs.
  const std::string chart = svg.substr(svg.find(">Validation loss<"));
  const auto ends_of = [&](const std::string& width) {
    const std::regex line("<polyline points=\"([^\"]*) \" fill=\"none\" stroke=\"#0072b2\" stroke-width=\"" +
                          width + "\"/>");
    std::vector<double> ends;
    for (std::sregex_iterator at(chart.begin(), chart.end(), line), none; at != none; ++at) {
      const std::string points = (*at)[1];
      if (std::ranges::count(points, ' ') == 4)
        ends.push_back(std::stod(points.substr(points.rfind(',') + 1)));
    }
    return ends;
  };
  const std::vector<double> faint = ends_of("0.6"), mean = ends_of("4");
  ASSERT_EQ(faint.size(), 2u);
  ASSERT_EQ(mean.size(), 1u);
  EXPECT_NEAR(mean[0], (faint[0] + faint[1]) / 2, 0.11);
  EXPECT_GT(std::abs(faint[0] - faint[1]), 20);
  // A run that has fewer evaluations ends the mean.
  EXPECT_THAT(drawn({one, run("short", text_of("elu", 3, 2, 3.0)), "--seeds"}),
              HasSubstr(">one, mean of 2<"));
  refuses(usage, {"plot", one, run("old", "{\"step\": 1, \"bits\": 3}\n"), "--seeds", "--out", path("x.svg")},
          {"settings", "old"});
}

TEST_F(Curves, NameWhatTheirBitsAreOf) {
  const auto lines = [](const std::string& model) {
    std::string text = losses(5, 4, 3);
    return text.replace(text.find("{}"), 2, "{\"model\": {" + model + "}}");
  };
  const std::string text = run("text", lines("\"vocabulary\": 256")),
                    other = run("other", lines("\"vocabulary\": 256")),
                    pieces = run("pieces", lines("\"vocabulary\": 500")),
                    numbers = run("numbers", lines("\"vocabulary\": 0, \"columns\": 2"));
  EXPECT_THAT(drawn({text, other}), HasSubstr(">bits per token<"));
  EXPECT_THAT(drawn({numbers}), HasSubstr(">bits per number<"));
  EXPECT_THAT(drawn({text, numbers}), HasSubstr(">bits per token or number<"));
  const Strings out = {"--out", path("plot.svg")};
  EXPECT_EQ(succeed(joined({"plot", text, other, numbers}, out)).err, "");
  const std::string note = succeed(joined({"plot", text, pieces, other}, out)).err;
  EXPECT_THAT(note, HasSubstr("cannot be compared between runs whose tokens differ: text, other | pieces;"));
}

TEST_F(Curves, NumbersThatNoAxisCanShowAreLeftOut) {
  const auto lines = [](const Strings& bits) {
    std::string text;
    for (std::size_t i = 0; i < bits.size(); ++i)
      text += "{\"step\": " + std::to_string(i + 1) + ", \"bits\": " + bits[i] + "}\n";
    return text;
  };
  for (const char* extreme : {"1e308", "-1e308", "4e-324", "-4e-324"}) {
    SCOPED_TRACE(extreme);
    EXPECT_THAT(drawn({run("run", lines({"3", extreme, "2.5"}))}), HasSubstr("Training loss"));
    const std::string evaluation = "{\"step\": 2, \"validation_bits\": " + std::string(extreme) + "}\n";
    refuses(failed, {"plot", run("none", lines({extreme, extreme}) + evaluation), "--out", path("plot.svg")},
            {"1e100"});
  }
  for (const char* step : {"1e300", "-1", "18446744073709551615", "1.5"})
    refuses(failed,
            {"plot", run("odd", "{\"step\": " + std::string(step) + ", \"bits\": 3}\n"), "--out",
             path("plot.svg")},
            {"odd", "line 1", "step"});
}

TEST_F(Curves, EveryAxisHasFourLabelsOrMore) {
  for (const auto& [first, last] :
       {std::pair(4.0, 3.9), std::pair(2.0, 1.0), std::pair(8.0, 0.01), std::pair(3.0, 3.0),
        std::pair(1.00001, 1.0), std::pair(0.5, 1e-9), std::pair(7000.0, 12.0)}) {
    for (const int count : {1, 2, 3, 9, 40, 700}) {
      for (const char* x : {"updates", "seconds", "tokens"}) {
        SCOPED_TRACE(testing::Message() << first << " to " << last << ", " << count << " " << x);
        const std::string svg = drawn({run("run", losses(count, first, last)), "--x", x});
        const std::size_t second = svg.find(">Validation loss<");
        for (const std::string& chart : {svg.substr(0, second), svg.substr(second)}) {
          const Axes axes = Axes::of(chart);
          for (const std::vector<std::string>& labels : {axes.across, axes.up}) {
            EXPECT_GE(labels.size(), 4u);
            EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), labels.size())
                << testing::PrintToString(labels);
          }
        }
      }
    }
  }
}

TEST_F(Curves, LabelsWriteTheNumbersAsTheyAre) {
  const Axes axes = Axes::of(drawn({run("run", losses(5, 1.66, 1.55))}));
  const std::set<std::string> labels(axes.up.begin(), axes.up.end());
  for (const char* label : {"1.55", "1.575", "1.6", "1.625"}) EXPECT_TRUE(labels.contains(label)) << label;
  EXPECT_FALSE(labels.contains("1.58"));
}

TEST_F(Curves, TheExtensionDecidesTheFormat) {
  const std::string whole = run("whole", losses(40, 8, 0.1)), png = path("losses.png");
  refuses(usage, {"plot", whole, "--out", path("losses.jpg")}, {"losses.jpg", ".svg", ".png"});
  const Ended ended = run_linnet({"plot", whole, "--out", png});
  if (ended.status == usage && ended.err.find("built without cairo") != std::string::npos)
    GTEST_SKIP() << ended.err;
  ASSERT_EQ(ended.status, 0) << ended.err;
  // Two pixels a point, and the colours of the curve, the grid and the paper.
  const Image image = read_png(png);
  const std::string svg = drawn({whole});
  EXPECT_THAT(svg, HasSubstr("width=\"" + std::to_string(image.width / 2) + "\""));
  ASSERT_EQ(image.channels, 3);
  std::set<std::vector<int>> colours;
  for (std::size_t i = 0; i + 2 < image.pixels.size(); i += 3)
    colours.insert({image.pixels[i], image.pixels[i + 1], image.pixels[i + 2]});
  for (const std::vector<int>& colour :
       {std::vector{0x00, 0x72, 0xb2}, std::vector{0xe4, 0xe4, 0xe4}, std::vector{255, 255, 255}})
    EXPECT_TRUE(colours.contains(colour)) << testing::PrintToString(colour);
}

TEST_F(Curves, TitlesStayAndEqualNamesAreToldApart) {
  const std::string lines = losses(5, 4, 3);
  const std::string svg = drawn(
      {run("a/run", lines), run("b/run/", lines), run("c", lines), path("c"), "--title", "Bits & pieces"});
  for (const char* words : {">Training loss<", ">Validation loss<", ">Bits &amp; pieces<", ">a/run<",
                            ">b/run<", ">c<", ">c (2)<"})
    EXPECT_THAT(svg, HasSubstr(words));
  const std::string long_name(200, 'n');
  EXPECT_THAT(drawn({run(long_name, lines)}), Not(HasSubstr(std::string(60, 'n'))));
  refuses(usage, {"plot", path("c"), "--x", "hours", "--out", path("x.svg")}, {"--x", "updates", "hours"});
  refuses(usage,
          {"plot", run("old", "{\"step\": 1, \"bits\": 3}\n"), "--x", "tokens", "--out", path("x.svg")},
          {"tokens", "old"});
}

TEST_F(Runs, CheckpointsAndFoldersThatCannotBeReadAreNoRuns) {
  begin("all/a");
  const std::string checkpoints = path("all/a/checkpoints");
  EXPECT_EQ(succeed({"runs", checkpoints}).out, "no training runs in " + checkpoints + "\n");
  EXPECT_EQ(json_of(succeed({"runs", path("all/a/checkpoints/1"), "--json"})).size(), 1u);
  fs::create_directory(path("all/closed"));
  fs::permissions(path("all/closed"), fs::perms::none);  // but for root
  const Ended ended = succeed({"runs", path("all"), "--json"});
  EXPECT_EQ(json_of(ended).size(), 1u);
  EXPECT_EQ(ended.err, "");
}

TEST_F(Runs, PipesInTheirFoldersAreNotWaitedFor) {
  begin("all/a");
  begin("all/b");
  fs::remove(path("all/b/metrics.jsonl"));
  ASSERT_EQ(mkfifo(path("all/b/metrics.jsonl").c_str(), 0600), 0);
  EXPECT_THAT(succeed({"runs", path("all")}).out, HasSubstr("a"));
  for (const char* file : {"run.toml", "config.json"}) {
    fs::remove(path("all/a/" + std::string(file)));
    ASSERT_EQ(mkfifo(path("all/a/" + std::string(file)).c_str(), 0600), 0);
    refuses(failed, {"evaluate", path("all/a")}, {"pipe", file});
  }
}

TEST_F(Runs, OfLabelsThatAreTheSameAsUtf8AreRefused) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += std::string(i % 3 == 0 ? "\xe4" : "\xfc") + "\tline\n";
  folder_.file("latin.tsv", lines);
  refuses(usage, {"train", "classify-lines", "--data", path("latin.tsv"), "--out", path("latin")},
          {"labels that differ as UTF-8"});
}

TEST_F(Runs, FromOtherModelsOrDataAreNoRepetitions) {
  begin("all/a");
  begin("all/b", {"--set", "training.seed=2"});
  const auto rows = [&] {
    return json_of(succeed({"runs", path("all"), "--seeds", "--differences", "--json"}));
  };
  EXPECT_EQ(rows().size(), 1u);
  begin("all/c", {"--set", "training.seed=3", "--init", path("all/a")});
  EXPECT_EQ(rows().size(), 2u);
  folder_.file("data.txt", some_text(1));
  begin("all/d", {"--set", "training.seed=4"});
  const Json found = rows();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_THAT(found[1]["differences"].get<std::string>(), HasSubstr("run.initial="));
  EXPECT_THAT(found[2]["differences"].get<std::string>(), HasSubstr("fingerprint.crc32="));
}

TEST_F(Runs, SettingsWithoutEffectAreWarnedOf) {
  const auto err = [&](const char* run, const Strings& settings) {
    Strings arguments = training(run, {"--set", "training.steps=1"});
    for (const std::string& setting : settings) arguments = joined(arguments, {"--set", setting});
    return succeed(arguments).err;
  };
  EXPECT_THAT(err("a", {"attention.rounds=3"}),
              HasSubstr("warning: attention.rounds has no effect on the family softmax"));
  EXPECT_THAT(err("b", {"attention.family=linear", "attention.features=32", "attention.alpha=0.5"}),
              testing::AllOf(HasSubstr("warning: attention.features has no effect beside"),
                             Not(HasSubstr("attention.alpha has"))));
  EXPECT_THAT(
      err("d", {"training.schedule=constant", "training.final_rate=0.5", "training.step_at=7",
                "training.truncate=true", "training.warmup=1"}),
      testing::AllOf(HasSubstr("warning: training.final_rate has no effect without training.schedule"),
                     HasSubstr("training.step_at has no"), HasSubstr("training.truncate has no"),
                     Not(HasSubstr("training.warmup has"))));
  EXPECT_THAT(err("e", {"model.mixtures=3", "model.value_head=student-t", "training.warmup=1"}),
              testing::AllOf(HasSubstr("model.mixtures has no effect without model.head = logistics"),
                             HasSubstr("model.value_head has no effect on a model that predicts no real"),
                             HasSubstr("training.warmup = 1 lasts for all 1 updates")));
  EXPECT_THAT(err("f", {"training.steps=11", "training.warmup=10"}), Not(HasSubstr("training.warmup")));
  EXPECT_THAT(err("g", {"training.schedule=step", "training.warmup=1", "training.steps=2"}),
              HasSubstr("training.step_at = 3000 comes behind the last of 2 updates"));
  EXPECT_THAT(err("c", {"attention.family=linear", "attention.feature_map=identity"}),
              HasSubstr("warning: attention.feature_map = identity has negative features"));
}

}  // namespace
}  // namespace linnet
