#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fail.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/dense.h"
#include "linnet/communicator.h"
#include "linnet/dataset.h"
#include "linnet/training.h"
#include "linnet/version.h"
#include "model/config.h"
#include "model/files.h"
#include "training/checkpoint.h"
#include "training/config.h"
#include "training/evaluation.h"
#include "training/examples.h"
#include "training/metrics.h"
#include "training/rank_agreement.h"
#include "training/run_lock.h"
#include "training/trainer.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

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

/// Rank 0 alone observes; all are asked whether to stop.
TrainingCallbacks callbacks_of(const TrainingCallbacks& given, const Communicator& ranks) {
  if (ranks.rank() == 0) return given;
  TrainingCallbacks own;
  own.should_stop = given.should_stop;
  return own;
}

/// A trainer with its data and the files of its folder, which rank 0 writes.
class Run {
 public:
  Run(Context& context, const ModelConfig& config, const TrainingOptions& options, const Dataset& training,
      const Dataset& validation, const fs::path& folder, const TrainingCallbacks& callbacks,
      std::shared_ptr<const FeatureMap> feature_map, const std::shared_ptr<const Model>& initial,
      Communicator& ranks)
      : context_(context),
        ranks_(ranks),
        config_(config),
        options_(options),
        training_(training),
        validation_(validation),
        folder_(folder),
        callbacks_(callbacks_of(callbacks, ranks)),
        trainer_(context, config, options, initial.get(), std::move(feature_map), &ranks),
        checkpoints_(folder),
        metrics_(folder) {
    check_training_data(config, options, training);
    try {
      check_fit(config, validation);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{} (of the validation data)", error.what()));
    }
    training_data_ = description_of(context, training, config);
    validation_data_ = description_of(context, validation, config);
    trainer_.set_assets_of(training);
  }

  TrainingResult run(bool resume) {
    // Before anything is written.
    require_same_task(ranks_,
                      {config_, options_, training_data_, validation_data_, resume, trainer_.adapted()});
    begin(resume);
    try {
      return go_on();
    } catch (...) {
      if (calling_) save_for_a_resume();
      throw;
    }
  }

 private:
  TrainingResult go_on() {
    TrainingProgress& progress = trainer_.progress();
    std::optional<Evaluation> evaluation;
    while (progress.evaluation_due || !has_ended()) {
      if (!progress.evaluation_due) update();
      if (progress.evaluation_due) {
        if (const auto found = report_evaluation()) evaluation = found;
      }
      const bool left = progress.evaluation_due, last = !left && has_ended();
      if (!left && callbacks_.draw_samples && options_.sample_every > 0 &&
          (last || is_due(options_.sample_every))) {
        check_lock();
        call(callbacks_.draw_samples, trainer_.steps(), trainer_.model());
      }
      const bool stop =
          left || any_rank(is_asked_to_stop() ||
                           (options_.minutes > 0 && seconds_since(start_) > 60 * options_.minutes));
      if (last || stop || is_due(options_.checkpoint_every)) save();
      if (stop) break;
    }
    return {trainer_.steps(), !progress.evaluation_due && has_ended(), evaluation, progress.best_step,
            progress.best_bits};
  }

  bool leads() const { return ranks_.rank() == 0; }

  bool is_due(std::int64_t every) const { return every > 0 && trainer_.steps() % every == 0; }

  /// callback(arguments), where there is one.
  template <class Callback, class... Arguments>
  void call(const Callback& callback, const Arguments&... arguments) {
    if (!callback) return;
    calling_ = true;
    callback(arguments...);
    calling_ = false;
  }

  /// After a callback has thrown, which leaves the trainer as it is. Other ranks would have to save too, and
  /// do not know of it. What it throws counts for more than a disk that is full.
  void save_for_a_resume() {
    if (ranks_.size() > 1 || !lock_) return;
    try {
      save();
    } catch (const std::exception&) {  // the checkpoints before it stay
    }
  }

  bool has_ended() const { return trainer_.steps() == options_.steps || out_of_patience(); }

  bool is_asked_to_stop() {
    if (!callbacks_.should_stop) return false;
    calling_ = true;
    const bool stop = callbacks_.should_stop();
    calling_ = false;
    return stop;
  }

  /// Whether one rank says so.
  bool any_rank(bool here) const {
    std::int64_t count = here;
    ranks_.sum(std::span(&count, 1));
    return count > 0;
  }

  /// What the folder of a run has to go on from.
  struct Found {
    std::int64_t step = -1;  ///< of the checkpoint; −1 for none
    bool older = false;      ///< whether a newer one is damaged
  };

  /// Takes the folder for this run.
  Found open_folder(bool resume) {
    Found found;
    if (!resume) require_new_folder();
    create_folders(folder_);
    lock_.emplace(folder_);
    if (!resume) require_new_folder();  // another program may have begun in it meanwhile
    if (resume)
      found.step = checkpoints_
                       .newest_whole([&](const std::string& fault) {
                         found.older = true;
                         say(fault + "; taking an older checkpoint");
                       })
                       .value_or(-1);
    // The first checkpoint of a run comes before its model.
    if (resume && found.step < 0 && has_whole_model(folder_))
      fail("resume",
           "expected a whole checkpoint in {}, got none beside the model of the run, which beginning anew "
           "would replace; a new run can start from that model (--init)",
           (folder_ / "checkpoints").string());
    return found;
  }

  void begin(bool resume) {
    Found found;
    if (leads()) found = open_folder(resume);
    ranks_.broadcast(std::as_writable_bytes(std::span(&found.step, 1)), 0);
    if (found.step >= 0) {
      restore(found.step);
    } else if (resume) {
      say("no checkpoint yet: starting from the beginning");
    }
    if (found.step < 0) trainer_.set_scale_of(training_);
    if (!kernels::multiplies_fast(options_.precision))
      say(fmt::format(
          "warning: this machine has no fast instructions for products of {}: they are products of f32, "
          "as without training.precision",
          name_of(options_.precision)));
    require_same_numbers(ranks_, trainer_);
    seconds_before_ = trainer_.progress().seconds;
    if (leads()) begin_files(found);
    if (found.step < 0) saved();
  }

  void restore(std::int64_t step) {
    const fs::path checkpoint = checkpoints_.path(step);
    trainer_.restore(checkpoint);
    if (trainer_.steps() != step)
      fail("resume", "expected {} to be the checkpoint of step {}, got that of step {}", checkpoint.string(),
           step, trainer_.steps());
    if (options_.steps < step)
      fail<UsageError>("resume", "expected training.steps of at least {}, which {} has done, got {}", step,
                       folder_.string(), options_.steps);
    check_data(trainer_.progress());
    say(fmt::format("resuming from {}", checkpoint.string()));
    say_new_length();
    if (out_of_patience() && options_.steps > step)
      say(fmt::format("training.patience = {} has ended this run: with 0, or with more than {}, it goes on",
                      options_.patience, trainer_.progress().not_improved));
  }

  /// Checkpoints of earlier versions do not say what their data are.
  void check_data(const TrainingProgress& saved) const {
    const auto check = [&](const char* what, const std::string& before, const std::string& now) {
      if (!before.empty() && before != now)
        fail<UsageError>("resume", "expected the {} that the run in {} began with, {}, got {}", what,
                         folder_.string(), before, now);
    };
    check("training data", saved.training_data, training_data_);
    check("validation data", saved.validation_data, validation_data_);
  }

  void begin_files(const Found& found) {
    check_best(folder_ / "best");
    if (found.step >= 0) keep_checkpoints();  // first: it may make room for the rest
    call(callbacks_.on_begin);
    // The run may have been killed between its checkpoint and its own model, which no later step need write
    // again. A model that is newer than the checkpoint stays.
    if (found.step < 0)
      write_checkpoint();
    else if (!found.older || !has_whole_model(folder_))
      trainer_.write_model(folder_);
    if (const std::int64_t unreadable =
            metrics_.begin(trainer_.steps(), trainer_.progress().evaluation_due, heading());
        unreadable > 0)
      say(fmt::format("left out {} unreadable line{} of metrics.jsonl; the file as it was is {}", unreadable,
                      unreadable == 1 ? "" : "s", metrics_.damaged().string()));
  }

  void require_new_folder() const {
    const auto taken = [](const fs::directory_entry& entry) {
      return entry.path().filename() != RunLock::file_name && !is_temporary(entry.path());
    };
    const bool is_new = look_at_folders("train", [&] {
      return !fs::exists(folder_) ||
             (fs::is_directory(folder_) && std::none_of(fs::directory_iterator(folder_), {}, taken));
    });
    if (!is_new)
      fail(
          "train",
          "expected {} to be a new or empty folder, got one that exists; resuming (--resume) continues a run",
          folder_.string());
  }

  void say_new_length() {
    const std::int64_t before = trainer_.progress().planned;
    if (before == options_.steps) return;
    say(fmt::format("training.steps is now {} instead of {}{}", options_.steps, before,
                    options_.schedule == Schedule::cosine ? ": the schedule ends at the new number" : ""));
  }

  /// The first line of the metrics.
  Json heading() const {
    ModelConfig config = config_;
    TrainingOptions options = options_;
    Options table;
    add_options(table, config);
    add_options(table, options);
    return {{"version", version()},
            {"parameters", trainer_.network().table().parameter_count()},
            {"training_examples", training_.size()},
            {"validation_examples", validation_.size()},
            {"settings", table.to_json()}};
  }

  void update() {
    const StepReport report = trainer_.step_in_order(training_);
    trainer_.progress().evaluation_due =
        trainer_.steps() == options_.steps || is_due(options_.evaluate_every);
    this->report(report);
  }

  void report(const StepReport& step) {
    if (leads() && (step.step % options_.log_every == 0 || step.step == options_.steps)) {
      Json line = line_of_now();
      line.update(Json{{"bits", step.bits},
                       {"smoothed_bits", step.smoothed_bits},
                       {"gradient_norm", step.gradient_norm},
                       {"learning_rate", step.learning_rate},
                       {"tokens_per_second", step.tokens_per_second}});
      append(line);
    }
    call(callbacks_.on_step, step);
    warn_of_divergence();
  }

  /// Once a call: the mean loss is a bit above that of equally probable tokens and a bit above the lowest
  /// mean so far. A few losses decide the mean of a run's first updates, which are left out unless no more
  /// follow.
  void warn_of_divergence() {
    constexpr double margin = 1;
    constexpr std::int64_t first = 20;
    const LossAverage& loss = trainer_.progress().loss;
    const double uniform = uniform_bits();
    if (warned_ || (trainer_.steps() < first && trainer_.steps() < options_.steps)) return;
    if (loss.mean() <= uniform + margin || loss.mean() <= loss.lowest + margin) return;
    warned_ = true;
    say(
        fmt::format("warning: the loss diverges: {:.4g} bits/{} on average at step {}, after {:.4g} at best, "
                    "where {} give "
                    "{:.4g}; a lower training.learning_rate, a longer "
                    "training.warmup or a lower training.clip may help",
                    loss.mean(), unit_of(config_), trainer_.steps(), loss.lowest,
                    config_.classifies()         ? "equally probable labels"
                    : config_.target_count() > 0 ? "numbers a bit worse than their mean"
                                                 : "equally probable tokens",
                    uniform));
  }

  /// The loss of equally probable tokens or labels, of real numbers one bit above that of their normal
  /// distribution.
  double uniform_bits() const {
    constexpr double normal = 2.05;
    if (config_.classifies()) return std::log2(static_cast<double>(config_.classes));
    return std::max(config_.vocabulary > 0 ? std::log2(static_cast<double>(config_.vocabulary)) : 0,
                    config_.target_count() > 0 ? normal + 1 : 0);
  }

  /// Nothing where the run is asked to stop meanwhile. The evaluation is then still due.
  std::optional<Evaluation> report_evaluation() {
    std::optional<Evaluation> found =
        evaluate(context_, trainer_.network(), validation_, options_.evaluate_examples, options_.batch,
                 config_.masked() || config_.classifies(), {}, ranks_.size() > 1 ? &ranks_ : nullptr,
                 [&] { return any_rank(is_asked_to_stop()); });
    if (!found) {
      say(fmt::format("stopping within the evaluation after step {}, with which a resume begins",
                      trainer_.steps()));
      return std::nullopt;
    }
    const Evaluation& evaluation = *found;
    Json line = line_of_now();
    line.update(Json{{"validation_bits", evaluation.bits}, {"validation_tokens", evaluation.tokens}});
    if (config_.target_count() > 0) {
      line["validation_squared_error"] = evaluation.squared_error;
      line["validation_absolute_error"] = evaluation.absolute_error;
    }
    if (config_.classifies()) line["validation_accuracy"] = evaluation.accuracy;
    if (config_.masked()) {
      line["validation_perplexity"] = evaluation.perplexity;
      line["validation_accuracy"] = evaluation.accuracy;
    }
    if (leads()) append(line);
    call(callbacks_.on_evaluation, trainer_.steps(), evaluation);
    compare_with_best(evaluation);
    trainer_.progress().evaluation_due = false;
    return found;
  }

  void compare_with_best(const Evaluation& evaluation) {
    TrainingProgress& progress = trainer_.progress();
    // Losses of other examples do not compare (training.evaluate_examples may change with a resume).
    const bool compares = progress.best_tokens == 0 || progress.best_tokens == evaluation.tokens;
    if (progress.best_step >= 0 && !compares)
      say(fmt::format("this evaluation counts {} {}s, those before it {}: what is the best begins anew",
                      evaluation.tokens, unit_of(config_), progress.best_tokens));
    if (progress.best_step >= 0 && compares && !(evaluation.bits < progress.best_bits)) {
      ++progress.not_improved;
      if (out_of_patience())
        say(fmt::format(
            "no better evaluation in {}: stopping at step {}; the best one, {:.4f} bits/{}, was at step {}",
            progress.not_improved, progress.step, progress.best_bits, unit_of(config_), progress.best_step));
      return;
    }
    progress.best_step = progress.step;
    progress.best_bits = evaluation.bits;
    progress.best_tokens = evaluation.tokens;
    progress.not_improved = 0;
    if (leads()) write_best(evaluation);
  }

  /// Before the run writes anything into its folder.
  void check_lock() const {
    if (lock_) lock_->check();
  }

  void append(const Json& line) {
    check_lock();
    metrics_.append(line);
  }

  void write_best(const Evaluation& evaluation) const {
    check_lock();
    check_best(folder_ / "best");
    AtomicFolder best(folder_ / "best");
    trainer_.write_model(best.path());
    write_json(best.path() / evaluation_file, Json{{"step", trainer_.steps()},
                                                   {"validation_bits", evaluation.bits},
                                                   {"validation_tokens", evaluation.tokens}});
    best.commit();
  }

  bool out_of_patience() const {
    return options_.patience > 0 && trainer_.progress().not_improved >= options_.patience;
  }

  void save() {
    require_same_numbers(ranks_, trainer_);
    if (leads()) write_checkpoint();
    saved();
  }

  void write_checkpoint() {
    check_lock();
    TrainingProgress& progress = trainer_.progress();
    progress.seconds = seconds();
    progress.training_data = training_data_;
    progress.validation_data = validation_data_;
    trainer_.save(checkpoints_.path(trainer_.steps()));
    checkpoints_.written(trainer_.steps());
    keep_checkpoints();
    trainer_.write_model(folder_);
  }

  void keep_checkpoints() {
    checkpoints_.keep(options_.keep_checkpoints, [&](const std::string& fault) { say(fault); });
  }

  /// All ranks know of a checkpoint when it is whole.
  void saved() {
    ranks_.barrier();
    trainer_.saved(checkpoints_.path(trainer_.steps()));
  }

  /// Since the run began, the time between a stop and a resume left out.
  double seconds() const { return seconds_before_ + seconds_since(start_); }

  /// What the lines of updates and of evaluations have in common.
  Json line_of_now() const {
    const TrainingProgress& progress = trainer_.progress();
    return {{"step", progress.step}, {"tokens", progress.examples * config_.length}, {"seconds", seconds()}};
  }

  void say(const std::string& message) { call(callbacks_.on_message, message); }

  Context& context_;
  Communicator& ranks_;
  ModelConfig config_;
  TrainingOptions options_;
  const Dataset& training_;
  const Dataset& validation_;
  std::string training_data_, validation_data_;  ///< description_of them
  fs::path folder_;
  TrainingCallbacks callbacks_;
  Trainer::Impl trainer_;
  Checkpoints checkpoints_;
  Metrics metrics_;
  std::optional<RunLock> lock_;
  Clock::time_point start_ = Clock::now();
  double seconds_before_ = 0;
  bool warned_ = false;
  bool calling_ = false;  ///< whether a callback runs, or has thrown
};

}  // namespace

TrainingResult train(Context& context, const ModelConfig& config, const TrainingOptions& options,
                     const Dataset& training, const Dataset& validation, const std::filesystem::path& folder,
                     bool resume, const TrainingCallbacks& callbacks,
                     std::shared_ptr<const FeatureMap> feature_map,
                     const std::shared_ptr<const Model>& initial, Communicator* ranks) {
  const std::unique_ptr<Communicator> alone = ranks == nullptr ? Communicator::alone() : nullptr;
  return Run(context, config, options, training, validation, folder, callbacks, std::move(feature_map),
             initial, ranks == nullptr ? *alone : *ranks)
      .run(resume);
}

}  // namespace linnet
