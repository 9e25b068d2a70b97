#include <chrono>
#include <sstream>

#include "base/fail.h"
#include "io/file.h"
#include "io/json.h"
#include "linnet/dataset.h"
#include "linnet/training.h"
#include "model/files.h"
#include "training/checkpoint.h"
#include "training/evaluation.h"
#include "training/examples.h"
#include "training/trainer.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* metrics_file = "metrics.jsonl";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Whether the model of a run's folder can be read and its weights have their digests.
bool has_whole_model(const fs::path& folder) {
  try {
    read_config(folder / config_file);
    Safetensors::read(folder / weights_file).check_digests();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// A trainer with its data and the files of its folder.
class Run {
 public:
  Run(Context& context, const ModelConfig& config, const TrainingOptions& options, const Dataset& training,
      const Dataset& validation, const fs::path& folder, const TrainingCallbacks& callbacks,
      std::shared_ptr<const FeatureMap> feature_map)
      : context_(context),
        config_(config),
        options_(options),
        training_(training),
        validation_(validation),
        folder_(folder),
        callbacks_(callbacks),
        trainer_(context, config, options, nullptr, std::move(feature_map)),
        checkpoints_(folder) {
    check_fit(config, training);
    check_fit(config, validation);
  }

  TrainingResult run(bool resume) {
    begin(resume);
    const Clock::time_point start = Clock::now();
    std::optional<Evaluation> evaluation;
    std::int64_t saved = trainer_.steps();
    while (trainer_.steps() < options_.steps) {
      update();
      const std::int64_t step = trainer_.steps();
      const bool last = step == options_.steps;
      const auto due = [&](std::int64_t every) { return every > 0 && step % every == 0; };
      if (last || due(options_.evaluate_every)) evaluation = report_evaluation();
      if (callbacks_.draw_samples && options_.sample_every > 0 && (last || due(options_.sample_every)))
        callbacks_.draw_samples(step, trainer_.model());
      const bool stop = (callbacks_.should_stop && callbacks_.should_stop()) ||
                        (options_.minutes > 0 && seconds_since(start) > 60 * options_.minutes);
      if (last || stop || due(options_.checkpoint_every)) {
        save();
        saved = step;
      }
      if (stop) break;
    }
    if (saved != trainer_.steps() || !fs::exists(checkpoints_.path(trainer_.steps()))) save();
    return {trainer_.steps(), trainer_.steps() == options_.steps, evaluation};
  }

 private:
  void begin(bool resume) {
    std::optional<std::int64_t> newest;
    bool older = false;
    if (resume)
      newest = checkpoints_.newest_whole([&](const std::string& fault) {
        older = true;
        say(fault + "; taking an older checkpoint");
      });
    if (!resume && fs::exists(folder_) && (!fs::is_directory(folder_) || !fs::is_empty(folder_)))
      fail("train",
           "expected {} to be a new or empty folder, got one that exists; add --resume to continue its run",
           folder_.string());
    create_folders(folder_);
    if (newest) {
      const fs::path checkpoint = checkpoints_.path(*newest);
      trainer_.restore(checkpoint);
      if (trainer_.steps() != *newest)
        fail("resume", "expected {} to be the checkpoint of step {}, got that of step {}",
             checkpoint.string(), *newest, trainer_.steps());
      // The run may have been killed between its checkpoint and its own model, which no later step need write
      // again. A model that is newer than the checkpoint stays.
      if (!older || !has_whole_model(folder_)) trainer_.impl().write_model(folder_);
      say(fmt::format("resuming from {}", checkpoint.string()));
    } else if (resume) {
      say("no checkpoint yet: starting from the beginning");
    }
    keep_metrics_up_to(trainer_.steps());
  }

  void update() {
    const Clock::time_point start = Clock::now();
    const std::uint64_t seed = static_cast<std::uint64_t>(options_.seed);
    const std::int64_t count = options_.batch * options_.accumulate, first = trainer_.steps() * count;
    const Batch batch = examples_.read(
        context_, training_, config_, count,
        [&](std::int64_t i) { return shuffled_index(seed, first + i, training_.size()); },
        {Random(seed, Draw::masking, training_masks), [&](std::int64_t i) { return first + i; }});
    StepReport report = trainer_.step(batch);
    // With the time that reading the examples took.
    report.tokens_per_second = static_cast<double>(count * config_.length) / seconds_since(start);
    this->report(report);
  }

  void report(const StepReport& step) {
    if (callbacks_.on_step) callbacks_.on_step(step);
    if (step.step % options_.log_every == 0 || step.step == options_.steps)
      append_metrics({{"step", step.step},
                      {"bits", step.bits},
                      {"gradient_norm", step.gradient_norm},
                      {"learning_rate", step.learning_rate},
                      {"tokens_per_second", step.tokens_per_second}});
  }

  Evaluation report_evaluation() {
    const Evaluation evaluation = evaluate(context_, trainer_.impl().network(), validation_,
                                           options_.evaluate_examples, options_.batch, config_.masked());
    if (callbacks_.on_evaluation) callbacks_.on_evaluation(trainer_.steps(), evaluation);
    Json line = {{"step", trainer_.steps()},
                 {"validation_bits", evaluation.bits},
                 {"validation_tokens", evaluation.tokens}};
    if (config_.masked()) {
      line["validation_perplexity"] = evaluation.perplexity;
      line["validation_accuracy"] = evaluation.accuracy;
    }
    append_metrics(line);
    return evaluation;
  }

  void save() {
    trainer_.save(checkpoints_.path(trainer_.steps()));
    checkpoints_.keep(options_.keep_checkpoints);
    trainer_.impl().write_model(folder_);
  }

  void append_metrics(const Json& line) const { append_line(folder_ / metrics_file, line.dump()); }

  /// Lines of updates that a killed run made after its last checkpoint will be written again.
  void keep_metrics_up_to(std::int64_t step) const {
    const fs::path path = folder_ / metrics_file;
    if (!fs::exists(path)) return;
    const std::string text = read_file(path);
    std::istringstream lines(text);
    std::string kept, line;
    std::int64_t unreadable = 0;
    while (std::getline(lines, line)) {
      const Json json = Json::parse(line, nullptr, false);
      if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
        ++unreadable;
      else if (json["step"].get<std::int64_t>() <= step)
        kept += line + "\n";
    }
    if (unreadable > 0) {
      const fs::path aside = fs::path(path) += ".damaged";
      write_file_atomically(aside, text);
      say(fmt::format("left out {} lines of {} that cannot be read; the file as it was is {}", unreadable,
                      path.string(), aside.string()));
    }
    write_file_atomically(path, kept);
  }

  void say(const std::string& message) const {
    if (callbacks_.on_message) callbacks_.on_message(message);
  }

  Context& context_;
  ModelConfig config_;
  TrainingOptions options_;
  const Dataset& training_;
  const Dataset& validation_;
  fs::path folder_;
  const TrainingCallbacks& callbacks_;
  Trainer trainer_;
  Checkpoints checkpoints_;
  Examples examples_;
};

}  // namespace

TrainingResult train(Context& context, const ModelConfig& config, const TrainingOptions& options,
                     const Dataset& training, const Dataset& validation, const std::filesystem::path& folder,
                     bool resume, const TrainingCallbacks& callbacks,
                     std::shared_ptr<const FeatureMap> feature_map) {
  return Run(context, config, options, training, validation, folder, callbacks, std::move(feature_map))
      .run(resume);
}

}  // namespace linnet
