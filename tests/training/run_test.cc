// What a run keeps about itself: metrics, the best evaluation, patience, its lock, first weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/sanitizers.h"
#include "kernels/dense.h"
#include "linnet/version.h"
#include "support/runs.h"
#include "training/examples.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::UnorderedElementsAre;

std::vector<double> numbers(const std::vector<Json>& metrics, const char* key) {
  std::vector<double> found;
  for (const Json& line : metrics)
    if (line.contains(key)) found.push_back(line[key].get<double>());
  return found;
}

// The system refuses to look at a name of more than 255 bytes.
TEST(Run, AFolderThatCannotBeLookedAtIsAnErrorWithASentence) {
  Folder folder;
  const fs::path name = folder / std::string(300, 'x');
  for (const bool resume : {false, true})
    EXPECT_THAT(error_of<Error>([&] { run(name, trained_config(), tiny_options(), resume); }),
                AllOf(StartsWith("["), HasSubstr(name.string())));
}

TEST(Run, IsWholeBeforeItsFirstUpdate) {
  Folder folder;
  bool begun = false, updated = false;
  TrainingCallbacks callbacks;
  callbacks.on_begin = [&] {
    EXPECT_FALSE(fs::exists(folder / "run/config.json")) << "something was written before";
    begun = true;
  };
  callbacks.on_step = [&](const StepReport&) {
    updated = true;
    EXPECT_TRUE(begun);
    EXPECT_EQ(by_name(*Model::load(folder / "run")),
              by_name(*Model::random(trained_config(), static_cast<std::uint64_t>(tiny_options().seed))));
    EXPECT_TRUE(fs::exists(folder / "run/checkpoints/0/state.json"));
    EXPECT_EQ(metrics_of(folder / "run").size(), 2u) << "settings and the update";
  };
  TrainingOptions options = tiny_options();
  options.steps = 1;
  options.keep_checkpoints = 1;
  run(folder / "run", trained_config(), options, false, callbacks);
  EXPECT_TRUE(updated);
  EXPECT_FALSE(fs::exists(folder / "run/checkpoints/0")) << "older than the ones to keep";
}

TEST(Run, MetricsBeginWithSettingsAndCountTokensAndTime) {
  Folder folder;
  TrainingOptions options = tiny_options();
  run(folder.path(), trained_config(), options, false, stopping_after(7));
  run(folder.path(), trained_config(), options, true);
  const std::vector<Json> metrics = metrics_of(folder.path());
  const Json& heading = metrics.front();
  EXPECT_EQ(heading["version"], version());
  EXPECT_EQ(heading["settings"]["training"]["steps"], 12);
  EXPECT_EQ(heading["settings"]["model"]["width"], trained_config().width);
  EXPECT_EQ(heading["parameters"], Model::load(folder.path())->parameter_count());
  EXPECT_EQ(heading["training_examples"], training_set().size());
  // The mean of definition: weights 0.98^(n - i) over the losses 1 … n.
  const std::vector<double> bits = numbers(metrics, "bits"), smoothed = numbers(metrics, "smoothed_bits");
  ASSERT_EQ(bits.size(), 12u);
  for (std::size_t n = 0; n < bits.size(); ++n) {
    double sum = 0, weights = 0;
    for (std::size_t i = 0; i <= n; ++i) {
      const double weight = std::pow(0.98, static_cast<double>(n - i));
      sum += weight * bits[i];
      weights += weight;
    }
    EXPECT_NEAR(smoothed[n], sum / weights, 1e-12 * std::abs(smoothed[n]));
  }
  for (std::size_t i = 1; i < metrics.size(); ++i) {
    EXPECT_EQ(metrics[i]["tokens"], metrics[i]["step"].get<int>() * 3 * 2 * 6);
    EXPECT_GE(metrics[i]["seconds"].get<double>(), i == 1 ? 0 : metrics[i - 1]["seconds"].get<double>());
  }
}

TEST(Run, UnreadableLinesOfMetricsAreRemovedWithAWord) {
  Folder folder;
  run(folder.path(), trained_config(), tiny_options(), false, stopping_after(6));
  append_line(folder / "metrics.jsonl", "{\"step\": 7, \"bi");
  append_line(folder / "metrics.jsonl", "[]");
  std::string messages;
  TrainingCallbacks callbacks;
  callbacks.on_message = [&](const std::string& message) { messages += message + "\n"; };
  run(folder.path(), trained_config(), tiny_options(), true, callbacks);
  EXPECT_THAT(messages, HasSubstr("left out 2 unreadable lines of metrics.jsonl"));
  expect_no_step_twice(metrics_of(folder.path()));
}

TEST(Run, BeginsWhereAKilledOneLeftNothingButAFileThatIsNotWhole) {
  Folder folder;
  std::filesystem::create_directories(folder.path());
  write_file_atomically(folder / ".run.toml.999999999-0.tmp", "[mod");
  write_file_atomically(folder / ".lock", "");
  run(folder.path(), trained_config(), tiny_options(), false, stopping_after(2));
  EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints/2"));
}

TEST(Run, SaysWhereAMachineHasNoProductsOfBf16) {
  for (const WeightType precision : {WeightType::f32, WeightType::bf16}) {
    Folder folder;
    TrainingOptions options = tiny_options();
    options.precision = precision;
    options.steps = 2;
    std::string messages;
    TrainingCallbacks callbacks;
    callbacks.on_message = [&](const std::string& message) { messages += message + "\n"; };
    const TrainingResult result = run(folder.path(), trained_config(), options, false, callbacks);
    EXPECT_TRUE(result.finished);
    EXPECT_EQ(messages.find("no fast instructions for products of bf16") != std::string::npos,
              !kernels::multiplies_fast(precision))
        << messages;
  }
}

/// Bytes of this process in memory.
double resident_memory() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/// Room for the C library, whose memory in use changes by some pages.
constexpr double most_growth = 4e6;

TEST(Run, TakesNoMoreMemoryInTenThousandUpdates) {
#if defined(LINNET_ADDRESS_SANITIZER) || defined(LINNET_THREAD_SANITIZER)
  GTEST_SKIP() << "sanitizers keep memory of their own beside ours";
#endif
  Context context(1);
  TrainingOptions options = tiny_options();
  options.accumulate = 1;
  Trainer trainer(context, trained_config(), options);
  Examples examples;
  const Random random(1, Draw::test);
  double before = 0;
  for (std::int64_t step = 0; step < 10'000; ++step) {
    const Batch batch = examples.read(context, training_set(), trained_config(), 3,
                                      [&](std::int64_t i) { return (3 * step + i) % training_set().size(); },
                                      {random, [&](std::int64_t i) { return 3 * step + i; }, 0, random});
    trainer.step(batch);
    if (step == 100) before = resident_memory();
  }
  EXPECT_GT(before, 0);
  EXPECT_LT(resident_memory() - before, most_growth);
}

TEST(Run, WarnsOnceWhereTheLossDiverges) {
  const auto warnings = [&](double rate, std::int64_t steps) {
    Folder folder("rate");
    TrainingOptions options = tiny_options();
    options.steps = steps;
    options.learning_rate = rate;
    options.warmup = 0;
    options.schedule = Schedule::constant;
    std::vector<std::string> found;
    TrainingCallbacks callbacks;
    callbacks.on_message = [&](const std::string& message) {
      if (message.find("diverges") != std::string::npos) found.push_back(message);
    };
    run(folder.path(), trained_config(), options, false, callbacks);
    return found;
  };
  const std::vector<std::string> found = warnings(10, 60);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0], HasSubstr("at step 20"));
  EXPECT_THAT(found[0], HasSubstr("2.322"));  // log2 5
  EXPECT_THAT(found[0], HasSubstr("training.learning_rate"));
  EXPECT_EQ(warnings(10, 12).size(), 1u) << "a run of few updates";
  EXPECT_EQ(warnings(0.01, 60).size(), 0u);
  EXPECT_EQ(warnings(0, 60).size(), 0u);
}

/// A run whose evaluations get worse at some step: the rate is far too high.
TrainingOptions restless() {
  TrainingOptions options = tiny_options();
  options.steps = 40;
  options.evaluate_every = 2;
  options.checkpoint_every = 7;
  options.learning_rate = 0.5;
  options.schedule = Schedule::constant;
  options.evaluate_examples = 0;
  return options;
}

TEST(Run, KeepsTheModelOfTheBestEvaluation) {
  Folder whole("whole"), parts("parts");
  const TrainingResult result = run(whole.path(), trained_config(), restless());
  const std::vector<double> bits = numbers(metrics_of(whole.path()), "validation_bits");
  const auto best = std::ranges::min_element(bits);
  ASSERT_NE(best, bits.end() - 1) << "the last evaluation is the best: the test shows nothing";
  EXPECT_EQ(result.best_bits, *best);
  EXPECT_EQ(result.best_step, 2 * (best - bits.begin() + 1));
  const Json written = read_json(whole / "best/evaluation.json");
  EXPECT_EQ(written["validation_bits"], *best);
  EXPECT_EQ(written["step"], 2 * (best - bits.begin() + 1));
  EXPECT_EQ(evaluate(any_context(), *Model::load(whole / "best"), validation_set(), 0, 3).bits, *best);
  for (const std::int64_t stop : {1, 9, 23, 39})
    run(parts.path(), trained_config(), restless(), true, stopping_after(stop));
  run(parts.path(), trained_config(), restless(), true);
  EXPECT_EQ(read_json(parts / "best/evaluation.json"), written);
  EXPECT_EQ(weights_of(parts / "best"), weights_of(whole / "best"));
}

TEST(Run, StopsWhenItsPatienceEnds) {
  TrainingOptions options = tiny_options();
  options.learning_rate = 0;  // no evaluation is better than the first
  options.evaluate_every = 2;
  options.patience = 3;
  Folder whole("whole"), parts("parts");
  std::string messages;
  TrainingCallbacks callbacks;
  callbacks.on_message = [&](const std::string& message) { messages += message + "\n"; };
  const TrainingResult result = run(whole.path(), trained_config(), options, false, callbacks);
  EXPECT_EQ(result.step, 8);
  EXPECT_TRUE(result.finished);
  EXPECT_THAT(messages, HasSubstr("no better evaluation in 3: stopping at step 8"));
  EXPECT_TRUE(fs::exists(whole / "checkpoints/8"));

  run(parts.path(), trained_config(), options, false, stopping_after(5));
  EXPECT_EQ(run(parts.path(), trained_config(), options, true).step, 8) << "patience is kept over a resume";
  EXPECT_EQ(run(parts.path(), trained_config(), options, true).step, 8);
  options.steps = 14;
  messages.clear();
  EXPECT_EQ(run(parts.path(), trained_config(), options, true, callbacks).step, 8);
  EXPECT_THAT(messages, HasSubstr("training.patience = 3 has ended this run: with 0, or with more than 3"));
  options.steps = 12;
  options.patience = 0;
  EXPECT_EQ(run(parts.path(), trained_config(), options, true).step, 12);
}

TEST(Run, ComparesNoLossesOfOtherExamples) {
  TrainingOptions options = tiny_options();
  options.evaluate_every = 2;
  options.evaluate_examples = 1;
  options.patience = 1;
  options.learning_rate = 0;
  Folder folder;
  run(folder.path(), trained_config(), options, false, stopping_after(3));
  const Json one = read_json(folder / "best/evaluation.json");
  options.evaluate_examples = 0;
  options.steps = 4;
  std::string messages;
  TrainingCallbacks callbacks;
  callbacks.on_message = [&](const std::string& message) { messages += message + "\n"; };
  const TrainingResult result = run(folder.path(), trained_config(), options, true, callbacks);
  const Json all = read_json(folder / "best/evaluation.json");
  EXPECT_GT(all["validation_tokens"], one["validation_tokens"]);
  EXPECT_EQ(all["step"], 4);
  EXPECT_EQ(result.best_bits, all["validation_bits"]);
  EXPECT_THAT(messages, HasSubstr("what is the best begins anew"));
  EXPECT_THAT(messages, testing::Not(HasSubstr("no better evaluation")));
}

TEST(Run, WhoseCheckpointsAreGoneIsRefused) {
  Folder folder;
  run(folder.path(), trained_config(), tiny_options());
  const auto before = weights_of(folder.path());
  fs::remove_all(folder / "checkpoints");
  EXPECT_THAT(error_of<Error>([&] { run(folder.path(), trained_config(), tiny_options(), true); }),
              AllOf(HasSubstr("expected a whole checkpoint in"), HasSubstr("--init")));
  EXPECT_EQ(weights_of(folder.path()), before);
}

TEST(Run, StepsMayDifferOnAResumeButNotLieBelow) {
  Folder folder;
  run(folder.path(), trained_config(), tiny_options(), false, stopping_after(6));
  TrainingOptions options = tiny_options();
  options.steps = 5;
  const std::string message =
      error_of<UsageError>([&] { run(folder.path(), trained_config(), options, true); });
  EXPECT_THAT(message, HasSubstr("training.steps of at least 6"));
  options.steps = 20;
  std::vector<double> rates;
  TrainingCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { rates.push_back(report.learning_rate); };
  EXPECT_EQ(run(folder.path(), trained_config(), options, true, callbacks).step, 20);
  ASSERT_EQ(rates.size(), 14u);
  EXPECT_NEAR(rates.back(), options.final_rate * options.learning_rate, 1e-15) << "the schedule's new end";
  EXPECT_EQ(metrics_of(folder.path()).front()["settings"]["training"]["steps"], 20);
}

TEST(Run, ItsFolderIsForOneRunAtATime) {
  Folder folder;
  int tried = 0;
  TrainingCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step != 6) return;
    ++tried;
    const std::string checkpoint = read_file(folder / "run/checkpoints/5/state.json");
    const std::string message =
        error_of([&] { run(folder / "run", trained_config(), tiny_options(), true); });
    EXPECT_THAT(message, HasSubstr((folder / "run").string()));
    EXPECT_THAT(message, HasSubstr("process " + std::to_string(getpid())));
    EXPECT_EQ(read_file(folder / "run/checkpoints/5/state.json"), checkpoint);
  };
  run(folder / "run", trained_config(), tiny_options(), false, callbacks);
  EXPECT_EQ(tried, 1);
  EXPECT_EQ(run(folder / "run", trained_config(), tiny_options(), true).step, 12);
}

// What comes to have the name of a run's folder is another run's, or nobody's: nothing is written into it.
TEST(Run, EndsWhereItsFolderIsMovedOrRemoved) {
  enum class Loss { moved, replaced, removed, unlocked };
  for (const Loss loss : {Loss::moved, Loss::replaced, Loss::removed, Loss::unlocked}) {
    Folder folder;
    const fs::path own = folder / "run";
    TrainingCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& report) {
      if (report.step != 4) return;
      if (loss == Loss::removed) fs::remove_all(own);
      if (loss == Loss::unlocked) fs::remove(own / ".lock");
      if (loss == Loss::moved || loss == Loss::replaced) fs::rename(own, folder / "elsewhere");
      if (loss != Loss::replaced) return;
      TrainingOptions other = tiny_options();
      other.seed = 99;
      run(own, trained_config(), other, false);
    };
    const std::string message =
        error_of([&] { run(own, trained_config(), tiny_options(), false, callbacks); });
    EXPECT_THAT(message, AllOf(HasSubstr(own.string()), HasSubstr("moved or removed")));
    const bool was_moved = loss == Loss::moved || loss == Loss::replaced;
    EXPECT_EQ(fs::exists(own), loss == Loss::replaced || loss == Loss::unlocked);
    if (was_moved) {
      EXPECT_EQ(run(folder / "elsewhere", trained_config(), tiny_options(), true).step, 12);
    }
    if (loss != Loss::replaced) continue;
    TrainingOptions other = tiny_options();
    other.seed = 99;
    EXPECT_EQ(run(own, trained_config(), other, true).step, 12);
    EXPECT_EQ(metrics_of(own).size(), metrics_of(folder / "elsewhere").size());
  }
}

TEST(Run, StartsFromAModel) {
  Folder folder;
  const auto initial = Model::random(tiny_config(), 77);
  TrainingOptions options = tiny_options();
  options.steps = 0;
  train(any_context(), tiny_config(), options, training_set(), validation_set(), folder.path(), false, {},
        nullptr, initial);
  EXPECT_EQ(by_name(*Model::load(folder.path())), by_name(*initial));
}

// From a model of labels to one without, of the same tokens, and to one that predicts nothing at its steps.
TEST(AdaptModel, KeepsTheRowsOfTokensBesideOtherInputs) {
  ModelConfig labels = tiny_config();
  labels.classes = 3;
  ModelConfig plain = tiny_config(), classifier = labels;
  classifier.objective = Objective::classify;
  const auto model = Model::random(labels, 77);
  const std::vector<double> given = by_name(*model).at("embedding.weight");
  for (const ModelConfig& config : {plain, classifier}) {
    std::vector<std::string> differences;
    const auto adapted = by_name(*adapt_model(*model, config, 3, &differences)).at("embedding.weight"),
               drawn = by_name(*Model::random(config, 3)).at("embedding.weight");
    const std::int64_t tokens = config.vocabulary * config.width;
    ASSERT_LT(adapted.size(), given.size());
    EXPECT_TRUE(std::equal(adapted.begin(), adapted.begin() + tokens, given.begin()));
    EXPECT_TRUE(std::equal(adapted.begin() + tokens, adapted.end(), drawn.begin() + tokens, drawn.end()));
    EXPECT_THAT(differences, testing::Contains(AllOf(StartsWith("embedding.weight is [8, "),
                                                     HasSubstr("(the rows of its 5 tokens are shared)"))));
  }
}

TEST(AdaptModel, KeepsWhatFitsDrawsTheRestAndNamesIt) {
  ModelConfig config = tiny_config();
  const auto model = Model::random(config, 77);
  config.vocabulary = 9;
  config.layers += 1;
  std::vector<std::string> differences;
  const auto adapted = by_name(*adapt_model(*model, config, 3, &differences));
  const auto given = by_name(*model), drawn = by_name(*Model::random(config, 3));
  std::size_t kept = 0;
  for (const auto& [name, values] : adapted) {
    const bool fits = given.contains(name) && given.at(name).size() == values.size();
    kept += fits;
    EXPECT_EQ(values, fits ? given.at(name) : drawn.at(name)) << name;
    const bool named = std::ranges::any_of(differences, [&, name = name](const std::string& difference) {
      return difference.starts_with(name + " ");
    });
    EXPECT_EQ(named, !fits) << name;
  }
  EXPECT_GT(kept, 5u);
  config.layers -= 1;
  adapt_model(*Model::random(tiny_config(), 1), tiny_config(), 3, &differences);
  EXPECT_TRUE(differences.empty());
}

}  // namespace
}  // namespace linnet
