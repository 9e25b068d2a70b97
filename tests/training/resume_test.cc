// Runs that are stopped or killed, and go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <set>

#include "base/random.h"
#include "io/safetensors.h"
#include "support/runs.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(Resume, EndsInTheBitsOfARunThatNeverStopped) {
  for (const OptimiserKind optimiser : {OptimiserKind::adamw, OptimiserKind::radam}) {
    TrainingOptions options = tiny_options();
    options.optimiser = optimiser;
    Folder whole("whole");
    EXPECT_TRUE(run(whole.path(), trained_config(), options).finished);
    for (const std::int64_t stop : {1, 2, 4, 5, 6, 9, 11}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(optimiser) << ", stopped after update " << stop);
      Folder stopped("stopped");
      const TrainingResult first =
          run(stopped.path(), trained_config(), options, false, stopping_after(stop));
      EXPECT_FALSE(first.finished);
      EXPECT_EQ(first.step, stop);
      const TrainingResult second = run(stopped.path(), trained_config(), options, true);
      EXPECT_TRUE(second.finished);
      EXPECT_EQ(second.step, 12);
      EXPECT_EQ(weights_of(stopped.path()), weights_of(whole.path()));
      expect_no_step_twice(metrics_of(stopped.path()));
      EXPECT_EQ(metrics_of(stopped.path()).size(), metrics_of(whole.path()).size());
    }
  }
}

std::vector<float> directions_of(const fs::path& folder) {
  const Tensor tensor =
      Safetensors::read(folder / "model.safetensors").tensor("layers.1.attention.directions");
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

ModelConfig redrawing(std::int64_t steps) {
  ModelConfig config = trained_config();
  config.attention.linear.feature_map = "favor";
  config.attention.linear.features = 8;
  config.attention.linear.redraw = steps;
  return config;
}

TEST(Resume, RandomFeaturesAreDrawnAnewAtTheSameSteps) {
  Folder whole("whole");
  run(whole.path(), redrawing(4), tiny_options());
  for (const std::int64_t stop : {3, 4, 5, 8, 11}) {
    Folder stopped("stopped");
    run(stopped.path(), redrawing(4), tiny_options(), false, stopping_after(stop));
    EXPECT_EQ(directions_of(stopped.path()),
              draw_random_features(
                  "favor", 3, {.features = 8, .draw = static_cast<std::uint64_t>((stop - 1) / 4), .layer = 1})
                  .directions);
    run(stopped.path(), redrawing(4), tiny_options(), true);
    EXPECT_EQ(weights_of(stopped.path()), weights_of(whole.path()));
  }
}

TEST(Resume, HadamardDirectionsAreDrawnAnewAtTheSameSteps) {
  ModelConfig config = redrawing(4);
  config.width = 8 * config.heads;
  config.attention.linear.directions = Directions::hadamard;
  Folder whole("whole"), stopped("stopped");
  run(whole.path(), config, tiny_options());
  run(stopped.path(), config, tiny_options(), false, stopping_after(5));
  const Safetensors file = Safetensors::read(fs::path(stopped.path()) / "model.safetensors");
  const RandomDraws expected = draw_random_features(
      "favor", 8, {.features = 8, .directions = Directions::hadamard, .draw = 1, .layer = 1});
  EXPECT_TRUE(std::ranges::equal(file.tensor("layers.1.attention.signs").span<float>(), expected.signs));
  EXPECT_TRUE(std::ranges::equal(file.tensor("layers.1.attention.lengths").span<float>(), expected.lengths));
  run(stopped.path(), config, tiny_options(), true);
  EXPECT_EQ(weights_of(stopped.path()), weights_of(whole.path()));
}

TEST(Resume, RandomFeaturesStayWithoutRedrawing) {
  Folder folder;
  TrainingOptions options = tiny_options();
  options.weight_decay = 0.5;
  run(folder.path(), redrawing(0), options);
  EXPECT_EQ(directions_of(folder.path()),
            draw_random_features("favor", 3, {.features = 8, .layer = 1}).directions);
}

TEST(Resume, OfAKilledRunEndsInTheSameBits) {
  // What a run has written when it is killed after some update is what lies in its folder then.
  Folder whole("whole"), copies("copies");
  TrainingCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    fs::copy(whole.path(), copies / std::to_string(report.step), fs::copy_options::recursive);
  };
  run(whole.path(), trained_config(), tiny_options(), false, callbacks);
  for (std::int64_t step = 1; step <= 12; ++step) {
    SCOPED_TRACE(testing::Message() << "killed after update " << step);
    const fs::path folder = copies / std::to_string(step);
    run(folder, trained_config(), tiny_options(), true);
    EXPECT_EQ(weights_of(folder), weights_of(whole.path()));
    expect_no_step_twice(metrics_of(folder));
    EXPECT_EQ(metrics_of(folder).size(), metrics_of(whole.path()).size());
  }
}

TEST(Resume, AfterAnExceptionOfACallbackGoesOnWithTheLastUpdate) {
  TrainingOptions options = tiny_options();
  Folder whole("whole"), ended("ended");
  run(whole.path(), trained_config(), options);
  // The options evaluate after update 5.
  for (const std::int64_t step : {3, 5}) {
    SCOPED_TRACE(step);
    TrainingCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& report) {
      if (report.step == step) throw std::runtime_error("mine");
    };
    EXPECT_THROW(run(ended.path(), trained_config(), options, true, callbacks), std::runtime_error);
    EXPECT_TRUE(fs::exists(ended / "checkpoints" / std::to_string(step)));
    // The model of the folder is that of the checkpoint.
    EXPECT_EQ(weights_of(ended.path()), weights_of(ended / "checkpoints" / std::to_string(step)));
  }
  TrainingCallbacks callbacks;
  callbacks.on_evaluation = [](std::int64_t step, const Evaluation&) {
    if (step == 10) throw std::runtime_error("mine");
  };
  EXPECT_THROW(run(ended.path(), trained_config(), options, true, callbacks), std::runtime_error);
  run(ended.path(), trained_config(), options, true);
  EXPECT_EQ(weights_of(ended.path()), weights_of(whole.path()));
  EXPECT_EQ(weights_of(ended / "best"), weights_of(whole / "best"));
  expect_no_step_twice(metrics_of(ended.path()));
  EXPECT_EQ(metrics_of(ended.path()).size(), metrics_of(whole.path()).size());
}

TEST(Resume, StoppedManyTimesEndsInTheSameBits) {
  Folder whole("whole"), stopped("stopped");
  run(whole.path(), trained_config(), tiny_options());
  for (std::int64_t step = 1; step < 12; ++step)
    EXPECT_EQ(run(stopped.path(), trained_config(), tiny_options(), true, stopping_after(step)).step, step);
  run(stopped.path(), trained_config(), tiny_options(), true);
  EXPECT_EQ(weights_of(stopped.path()), weights_of(whole.path()));
  expect_no_step_twice(metrics_of(stopped.path()));
}

TEST(Resume, BeginsWithTheEvaluationThatWasLeft) {
  TrainingOptions options = tiny_options();
  options.batch = 1;  // an evaluation has four batches
  options.patience = 9;
  Folder whole("whole"), left("left");
  const TrainingResult full = run(whole.path(), trained_config(), options);
  for (const std::int64_t step : {5, 12}) {
    SCOPED_TRACE(testing::Message() << "the evaluation after update " << step);
    TrainingCallbacks callbacks;
    std::int64_t updates = 0, asked = 0;
    std::string said;
    callbacks.on_step = [&](const StepReport& report) { updates = report.step; };
    callbacks.on_message = [&](const std::string& message) { said += message + "\n"; };
    callbacks.should_stop = [&] { return updates == step && ++asked == 3; };
    const TrainingResult first = run(left.path(), trained_config(), options, true, callbacks);
    EXPECT_EQ(first.step, step);
    EXPECT_FALSE(first.finished);
    EXPECT_NE(said.find("within the evaluation after step " + std::to_string(step)), std::string::npos)
        << said;
    for (const Json& line : metrics_of(left.path()))
      EXPECT_FALSE(line.contains("validation_bits") && line["step"] == step) << line.dump();
    // As if the run that goes on were killed behind its evaluation and an update.
    if (step == 5) {
      EXPECT_EQ(run(left.path(), trained_config(), options, true, stopping_after(6)).step, 6);
      fs::remove_all(left / "checkpoints/6");
    }
  }
  const TrainingResult last = run(left.path(), trained_config(), options, true);
  EXPECT_TRUE(last.finished);
  EXPECT_EQ(last.evaluation->bits, full.evaluation->bits);
  EXPECT_EQ(last.best_step, full.best_step);
  EXPECT_EQ(last.best_bits, full.best_bits);
  EXPECT_EQ(weights_of(left.path()), weights_of(whole.path()));
  EXPECT_EQ(weights_of(left / "best"), weights_of(whole / "best"));
  expect_no_step_twice(metrics_of(left.path()));
  EXPECT_EQ(metrics_of(left.path()).size(), metrics_of(whole.path()).size());
}

TEST(Resume, OfAFinishedRunChangesNothing) {
  Folder folder;
  run(folder.path(), trained_config(), tiny_options());
  const std::string weights = weights_of(folder.path());
  const std::size_t lines = metrics_of(folder.path()).size();
  const TrainingResult result = run(folder.path(), trained_config(), tiny_options(), true);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.step, 12);
  EXPECT_EQ(weights_of(folder.path()), weights);
  EXPECT_EQ(metrics_of(folder.path()).size(), lines);
}

TEST(Resume, WithoutACheckpointBegins) {
  Folder whole("whole"), empty("empty");
  run(whole.path(), trained_config(), tiny_options());
  run(empty / "new", trained_config(), tiny_options(), true);
  EXPECT_EQ(weights_of(empty / "new"), weights_of(whole.path()));
}

TEST(Training, RefusesAFolderThatIsNotEmpty) {
  Folder folder;
  write_file_atomically(folder / "thesis.txt", "precious");
  const std::string message = error_of([&] { run(folder.path(), trained_config(), tiny_options()); });
  EXPECT_NE(message.find(folder.path().string()), std::string::npos) << message;
  EXPECT_EQ(read_file(folder / "thesis.txt"), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);

  Folder finished("finished");
  run(finished.path(), trained_config(), tiny_options());
  const std::string weights = weights_of(finished.path());
  error_of([&] { run(finished.path(), trained_config(), tiny_options()); });
  EXPECT_EQ(weights_of(finished.path()), weights);
}

TEST(Training, RefusesAFolderThatIsAFile) {
  Folder folder;
  write_file_atomically(folder / "file", "precious");
  for (const bool resume : {false, true})
    error_of([&] { run(folder / "file", trained_config(), tiny_options(), resume); });
  EXPECT_EQ(read_file(folder / "file"), "precious");
}

TEST(Resume, RefusesAnotherConfigurationNamingTheKey) {
  Folder folder;
  run(folder.path(), trained_config(), tiny_options(), false, stopping_after(6));
  const auto refused = [&](const char* key, const ModelConfig& config, const TrainingOptions& options) {
    const std::string message = error_of([&] { run(folder.path(), config, options, true); });
    EXPECT_NE(message.find(key), std::string::npos) << message << ", which does not name " << key;
  };
  const auto other_model = [&](const char* key, const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = trained_config();
    change(config);
    refused(key, config, tiny_options());
  };
  other_model("model.width", [](auto& c) { c.width = 8; });
  other_model("model.layers", [](auto& c) { c.layers = 1; });
  other_model("model.dropout", [](auto& c) { c.dropout = 0.2; });
  other_model("model.norm", [](auto& c) { c.norm = NormOrder::post; });
  other_model("attention.family", [](auto& c) { c.attention.family = Family::softmax; });
  const auto other_training = [&](const char* key, const std::function<void(TrainingOptions&)>& change) {
    TrainingOptions options = tiny_options();
    change(options);
    refused(key, trained_config(), options);
  };
  other_training("training.seed", [](auto& o) { o.seed = 2; });
  other_training("training.batch", [](auto& o) { o.batch = 4; });
  other_training("training.accumulate", [](auto& o) { o.accumulate = 1; });
  other_training("training.learning_rate", [](auto& o) { o.learning_rate = 0.02; });
  other_training("training.optimiser", [](auto& o) { o.optimiser = OptimiserKind::radam; });
  other_training("training.weight_decay", [](auto& o) { o.weight_decay = 0; });
  other_training("training.clip", [](auto& o) { o.clip = 0; });
  other_training("training.warmup", [](auto& o) { o.warmup = 0; });
  other_training("training.beta2", [](auto& o) { o.beta2 = 0.9; });
  other_training("training.schedule", [](auto& o) { o.schedule = Schedule::constant; });
}

TEST(Resume, TakesOptionsThatCannotChangeTheParameters) {
  Folder whole("whole"), folder("stopped");
  run(whole.path(), trained_config(), tiny_options());
  run(folder.path(), trained_config(), tiny_options(), false, stopping_after(6));
  TrainingOptions options = tiny_options();
  options.log_every = 2;
  options.evaluate_every = 3;
  options.checkpoint_every = 4;
  options.keep_checkpoints = 1;
  EXPECT_TRUE(run(folder.path(), trained_config(), options, true).finished);
  EXPECT_EQ(weights_of(folder.path()), weights_of(whole.path()));
}

/// A run that stopped after update 6, with the checkpoints 5 and 6.
class StoppedRun : public testing::Test {
 protected:
  StoppedRun() { run(good_.path(), trained_config(), tiny_options(), false, stopping_after(6)); }

  /// A copy of it, to be damaged.
  fs::path copy() {
    const fs::path folder = copies_ / std::to_string(count_++);
    fs::copy(good_.path(), folder, fs::copy_options::recursive);
    return folder;
  }
  static fs::path checkpoint(const fs::path& folder, int step) {
    return folder / "checkpoints" / std::to_string(step);
  }
  static void flip(const fs::path& file, std::uint64_t byte, unsigned bit) {
    std::string bytes = read_file(file);
    bytes[byte % bytes.size()] ^= static_cast<char>(1 << bit % 8);
    write_file_atomically(file, bytes);
  }
  static std::set<std::string> steps_of(const fs::path& folder) {
    std::set<std::string> steps;
    for (const auto& entry : fs::directory_iterator(folder / "checkpoints"))
      steps.insert(entry.path().filename().string());
    return steps;
  }

  Folder good_{"good"}, copies_{"copies"};
  const std::set<std::string> names_ = {"config.json", "model.safetensors", "optimiser.safetensors",
                                        "state.json"};

 private:
  int count_ = 0;
};

TEST_F(StoppedRun, AFlippedBitInACheckpointIsAnErrorThatNamesTheFile) {
  constexpr std::uint64_t seed = 91;
  const Random random(seed, Draw::test);
  Trainer trainer(any_context(), trained_config(), tiny_options());
  const fs::path folder = checkpoint(good_.path(), 6);
  for (const std::string& name : names_) {
    const std::string bytes = read_file(folder / name);
    for (std::uint64_t i = 0; i < 100; ++i) {
      SCOPED_TRACE(testing::Message() << name << ", seed " << seed << ", draw " << i);
      const auto draw = random.block(i);
      flip(folder / name, draw[0], draw[1]);
      const std::string message = error_of([&] { trainer.restore(folder); });
      EXPECT_NE(message.find((folder / name).string()), std::string::npos) << message;
      write_file_atomically(folder / name, bytes);
    }
  }
  EXPECT_NO_THROW(trainer.restore(folder));
}

TEST_F(StoppedRun, GoesOnFromTheNewestWholeCheckpoint) {
  Folder whole("whole");
  run(whole.path(), trained_config(), tiny_options());
  const std::string weights = weights_of(good_.path());
  for (const std::string& name : names_) {
    for (const std::string damage : {"missing", "empty", "truncated", "flipped"}) {
      SCOPED_TRACE(name + ", " + damage);
      const fs::path folder = copy(), file = checkpoint(folder, 6) / name;
      if (damage == "missing") fs::remove(file);
      if (damage == "empty") write_file_atomically(file, "");
      if (damage == "truncated") fs::resize_file(file, fs::file_size(file) * 9 / 10);
      if (damage == "flipped") flip(file, fs::file_size(file) - 9, 2);
      std::string said;
      TrainingCallbacks callbacks;
      callbacks.on_message = [&](const std::string& message) { said += message + "\n"; };
      callbacks.on_step = [&](const StepReport& step) {
        // The model of update 6 is newer than the checkpoint of update 5, and whole.
        EXPECT_TRUE(step.step != 6 || weights_of(folder) == weights) << "overwritten";
      };
      EXPECT_TRUE(run(folder, trained_config(), tiny_options(), true, callbacks).finished);
      EXPECT_NE(said.find(file.string()), std::string::npos) << said;
      EXPECT_NE(said.find("resuming from " + checkpoint(folder, 5).string()), std::string::npos) << said;
      EXPECT_TRUE(weights_of(folder) == weights_of(whole.path()));
      expect_no_step_twice(metrics_of(folder));
    }
  }
}

TEST_F(StoppedRun, WritesItsModelWhereThatIsDamagedToo) {
  const fs::path folder = copy();
  fs::remove(checkpoint(folder, 6) / "state.json");
  flip(folder / "model.safetensors", fs::file_size(folder / "model.safetensors") - 9, 0);
  run(folder, trained_config(), tiny_options(), true, stopping_after(5));
  EXPECT_NO_THROW(Model::load(folder));
}

TEST_F(StoppedRun, KeepsWholeCheckpointsBesideDamagedOnes) {
  const fs::path folder = copy();
  fs::remove(checkpoint(folder, 6) / "optimiser.safetensors");
  run(folder, trained_config(), tiny_options(), true, stopping_after(7));
  EXPECT_EQ(steps_of(folder), (std::set<std::string>{"5", "6", "7"}));
  EXPECT_TRUE(run(folder, trained_config(), tiny_options(), true).finished);
  EXPECT_EQ(steps_of(folder), (std::set<std::string>{"10", "12"}));
}

TEST_F(StoppedRun, WithoutAWholeCheckpointIsRefusedAndLeftAlone) {
  const fs::path folder = copy();
  for (const int step : {5, 6}) fs::remove(checkpoint(folder, step) / "state.json");
  const std::string metrics = read_file(folder / "metrics.jsonl");
  const std::string message = error_of([&] { run(folder, trained_config(), tiny_options(), true); });
  EXPECT_NE(message.find((checkpoint(folder, 6) / "state.json").string()), std::string::npos) << message;
  EXPECT_EQ(weights_of(folder), weights_of(good_.path()));
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), metrics);
}

TEST_F(StoppedRun, GoesOnFromACheckpointWithoutDigests) {
  Folder whole("whole");
  run(whole.path(), trained_config(), tiny_options());
  const fs::path folder = copy(), newest = checkpoint(folder, 6);
  Json state = read_json(newest / "state.json");
  ASSERT_EQ(state.erase("xxh3"), 1u);
  write_json(newest / "state.json", state);
  EXPECT_TRUE(run(folder, trained_config(), tiny_options(), true).finished);
  EXPECT_EQ(weights_of(folder), weights_of(whole.path()));
}

TEST_F(StoppedRun, SaysWhichMetricsItCannotRead) {
  const fs::path folder = copy();
  const std::string before = read_file(folder / "metrics.jsonl");
  const std::string damaged = before +
                              "{\"step\": 4, \"bi\n{\"step\": \"5\"}\nnothing\n{\"step\": -1}\n"
                              "{\"step\": 18446744073709551615}\n{\"step\": 1, \"step\": 2}\n";
  write_file_atomically(folder / "metrics.jsonl", damaged);
  std::string said;
  TrainingCallbacks callbacks = stopping_after(7);
  callbacks.on_message = [&](const std::string& message) { said += message + "\n"; };
  run(folder, trained_config(), tiny_options(), true, callbacks);
  EXPECT_NE(said.find("left out 6 unreadable lines of metrics.jsonl"), std::string::npos) << said;
  EXPECT_NE(said.find((folder / "metrics.jsonl.damaged").string()), std::string::npos) << said;
  EXPECT_EQ(read_file(folder / "metrics.jsonl.damaged"), damaged);
  expect_no_step_twice(metrics_of(folder));
}

// Takes a minute where every name is compared with all others.
TEST_F(StoppedRun, ReadsMetricsWithAHundredThousandNamesAtOnce) {
  const fs::path folder = copy();
  std::string line = "{\"step\": 1";
  for (int i = 0; i < 100'000; ++i) line += ", \"name" + std::to_string(i) + "\": 0";
  write_file_atomically(folder / "metrics.jsonl", line + "}\n");
  const auto start = std::chrono::steady_clock::now();
  run(folder, trained_config(), tiny_options(), true, stopping_after(7));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(StoppedRun, TakesCheckpointsOfVersionsWithFewerOptions) {
  const fs::path folder = checkpoint(copy(), 6);
  Json state = read_json(folder / "state.json");
  state.erase("xxh3");
  for (const char* key : {"head_weights", "transpose", "precision", "segment", "truncate", "sequence_ranks"})
    EXPECT_EQ(state["training"].erase(key), 1u) << key;
  write_json(folder / "state.json", state);
  Trainer trainer(any_context(), trained_config(), tiny_options());
  EXPECT_NO_THROW(trainer.restore(folder));
  TrainingOptions rounded = tiny_options();
  rounded.precision = WeightType::bf16;
  Trainer other(any_context(), trained_config(), rounded);
  EXPECT_NE(error_of([&] { other.restore(folder); }).find("training.precision"), std::string::npos);
}

TEST_F(StoppedRun, RefusesOtherDataAndChangesNothing) {
  const fs::path folder = copy();
  const std::string metrics = read_file(folder / "metrics.jsonl");
  const Counting fewer(16, 6, 5), others(17, 6, 5, 0, true);
  const auto refused = [&](const Dataset& training, const Dataset& validation) {
    return error_of<UsageError>(
        [&] { train(any_context(), trained_config(), tiny_options(), training, validation, folder, true); });
  };
  const std::string fewer_error = refused(fewer, validation_set());
  EXPECT_NE(fewer_error.find("[resume] expected the training data that the run in " + folder.string() +
                             " began with, 17 examples with the digest "),
            std::string::npos)
      << fewer_error;
  EXPECT_NE(fewer_error.find("got 16 examples"), std::string::npos) << fewer_error;
  EXPECT_NE(refused(others, validation_set()).find("got 17 examples"), std::string::npos);
  EXPECT_NE(refused(training_set(), fewer).find("the validation data"), std::string::npos);
  EXPECT_EQ(read_file(folder / "metrics.jsonl"), metrics);

  // A checkpoint of a version that did not say what its data are.
  Json state = read_json(checkpoint(folder, 6) / "state.json");
  state.erase("xxh3");
  for (const char* key : {"training_data", "validation_data"}) EXPECT_EQ(state["run"].erase(key), 1u) << key;
  write_json(checkpoint(folder, 6) / "state.json", state);
  EXPECT_TRUE(
      train(any_context(), trained_config(), tiny_options(), fewer, validation_set(), folder, true).finished);
}

TEST_F(StoppedRun, RefusesNumbersOfStepsThatNoRunReaches) {
  const fs::path folder = checkpoint(copy(), 6);
  Json state = read_json(folder / "state.json");
  state.erase("xxh3");
  Trainer trainer(any_context(), trained_config(), tiny_options());
  const auto with = [&](const char* group, const char* key, const Json& value) {
    Json changed = state;
    (group[0] == '\0' ? changed : changed[group])[key] = value;
    write_json(folder / "state.json", changed);
    return error_of([&] { trainer.restore(folder); });
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const Json& value : {Json(most), Json(most - 1), Json(std::uint64_t{1} << 63)})
    for (const auto& [group, key] : {std::pair("", "step"), std::pair("", "examples"),
                                     std::pair("training", "steps"), std::pair("run", "best_step")})
      EXPECT_NE(with(group, key, value).find("state.json"), std::string::npos) << key << " " << value;
  for (const Json& value : {Json(1e300), Json(-1), Json("1")})
    for (const char* key : {"not_improved", "best_step"})
      EXPECT_NE(with("run", key, value).find("state.json"), std::string::npos) << key << " " << value;
  write_json(folder / "state.json", state);
  EXPECT_NO_THROW(trainer.restore(folder));
}

TEST_F(StoppedRun, RefusesMomentsThatAreNotFinite) {
  const fs::path folder = checkpoint(copy(), 6);
  const Safetensors file = Safetensors::read(folder / "optimiser.safetensors");
  const Tensor m = file.tensor("m");
  Tensor v = file.tensor("v");
  v.span<float>()[3] = std::numeric_limits<float>::infinity();
  const NamedTensor moments[] = {{"m", DType::f32, m.shape(), m.raw()},
                                 {"v", DType::f32, v.shape(), v.raw()}};
  write_safetensors(folder / "optimiser.safetensors", moments, {});
  Json state = read_json(folder / "state.json");
  state.erase("xxh3");
  write_json(folder / "state.json", state);
  Trainer trainer(any_context(), trained_config(), tiny_options());
  const std::string message = error_of([&] { trainer.restore(folder); });
  EXPECT_NE(message.find("finite numbers in v of"), std::string::npos) << message;
}

// A run's folder may have been changed by its owner, or come from somebody else.
TEST_F(StoppedRun, DeletesNothingThatIsNotItsOwn) {
  Folder elsewhere("elsewhere");
  fs::create_directory(elsewhere / "photos");
  write_file_atomically(elsewhere / "photos/a.jpg", "a");
  const fs::path folder = copy();
  fs::create_directory_symlink(elsewhere / "photos", folder / "checkpoints/1");
  fs::copy(checkpoint(folder, 5), checkpoint(folder, 2), fs::copy_options::recursive);
  write_file_atomically(checkpoint(folder, 2) / "notes.txt", "mine");
  fs::remove_all(folder / "best");
  fs::create_directory_symlink(elsewhere / "photos", folder / "best");
  EXPECT_THAT(error_of([&] { run(folder, trained_config(), tiny_options(), true); }), HasSubstr("a.jpg"));
  fs::remove(folder / "best");

  int told = 0;
  TrainingCallbacks callbacks;
  callbacks.on_message = [&](const std::string& message) {
    told += message.find("notes.txt") != std::string::npos ? 1 : 0;
  };
  EXPECT_TRUE(run(folder, trained_config(), tiny_options(), true, callbacks).finished);
  EXPECT_EQ(steps_of(folder), (std::set<std::string>{"2", "10", "12"}));
  EXPECT_EQ(read_file(checkpoint(folder, 2) / "notes.txt"), "mine");
  EXPECT_EQ(read_file(elsewhere / "photos/a.jpg"), "a");
  EXPECT_EQ(told, 1);
}

TEST(Checkpoints, AreModelsAndOnlyTheNewestStay) {
  Folder folder;
  TrainingOptions options = tiny_options();
  options.checkpoint_every = 2;
  options.keep_checkpoints = 3;
  run(folder.path(), trained_config(), options);
  std::set<std::string> steps;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints"))
    steps.insert(entry.path().filename().string());
  EXPECT_EQ(steps, (std::set<std::string>{"8", "10", "12"}));
  EXPECT_EQ(weights_of(folder / "checkpoints/12"), weights_of(folder.path()));
  EXPECT_NE(weights_of(folder / "checkpoints/10"), weights_of(folder.path()));
  EXPECT_EQ(Model::load(folder / "checkpoints/10")->config().width, 6);
  EXPECT_EQ(Model::load(folder.path())->config().dropout, 0.1);
}

}  // namespace
}  // namespace linnet
