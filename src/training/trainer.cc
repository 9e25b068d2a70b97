#include <chrono>
#include <cmath>
#include <fstream>
#include <numbers>
#include <sstream>

#include "base/fail.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/elementwise.h"
#include "linnet/dataset.h"
#include "linnet/training.h"
#include "model/files.h"
#include "model/training_transformer.h"
#include "training/checkpoint.h"
#include "training/config.h"
#include "training/evaluation.h"
#include "training/examples.h"
#include "training/optimiser.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* metrics_file = "metrics.jsonl";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Throws UsageError, naming the key, where a value is outside its range.
void check_ranges(TrainingOptions options) {
  Options table;
  add_options(table, options);
  table.load_json(table.to_json(), "training options");
}

/// One run: the parameters and all that changes with them.
class Trainer {
 public:
  Trainer(Context& context, const ModelConfig& config, const TrainingOptions& options,
          const Dataset& training, const Dataset& validation, const fs::path& folder,
          const TrainingCallbacks& callbacks)
      : context_(context),
        config_(config),
        options_(options),
        training_(training),
        validation_(validation),
        folder_(folder),
        callbacks_(callbacks),
        network_(config),
        values_(Tensor::of<float>({network_.table().size()})),
        gradients_(Tensor::of<float>({network_.table().size()})),
        optimiser_(network_.table(), options),
        checkpoints_(folder),
        transformer_(network_, options.batch, config.length) {
    if (config.weights != "f32")
      fail<UsageError>("training",
                       "expected model.weights = \"f32\", got \"{}\": train in f32 and convert the model",
                       config.weights);
    check_fit(config, training);
    check_fit(config, validation);
  }

  TrainingResult run(bool resume) {
    begin(resume);
    const Clock::time_point start = Clock::now();
    std::optional<Evaluation> evaluation;
    std::int64_t saved = step_;
    while (step_ < options_.steps) {
      update();
      const bool last = step_ == options_.steps;
      const auto due = [&](std::int64_t every) { return every > 0 && step_ % every == 0; };
      if (last || due(options_.evaluate_every)) evaluation = report_evaluation();
      if (callbacks_.draw_samples && options_.sample_every > 0 && (last || due(options_.sample_every)))
        callbacks_.draw_samples(step_, std::make_shared<const Model>(config_, values_.clone()));
      const bool stop = (callbacks_.should_stop && callbacks_.should_stop()) ||
                        (options_.minutes > 0 && seconds_since(start) > 60 * options_.minutes);
      if (last || stop || due(options_.checkpoint_every)) {
        save();
        saved = step_;
      }
      if (stop) break;
    }
    if (saved != step_ || !checkpoints_.newest()) save();
    return {step_, step_ == options_.steps, evaluation};
  }

 private:
  void begin(bool resume) {
    std::optional<std::int64_t> newest;
    if (resume) newest = checkpoints_.newest();
    if (!resume && fs::exists(folder_) && (!fs::is_directory(folder_) || !fs::is_empty(folder_)))
      fail("train",
           "expected {} to be a new or empty folder, got one that exists; add --resume to continue its run",
           folder_.string());
    create_folders(folder_);
    if (newest) {
      checkpoints_.load(*newest, config_, options_, network_.table(), values_.span<float>(), optimiser_);
      step_ = *newest;
      // The run may have been killed between its checkpoint and its own model, which no later step need write
      // again.
      write_model(folder_, config_, network_.table(), values_.span<float>());
      say(fmt::format("resuming from {}", checkpoints_.path(step_).string()));
    } else {
      network_.table().initialise(values_.span<float>(), static_cast<std::uint64_t>(options_.seed));
      if (resume) say("no checkpoint yet: starting from the beginning");
    }
    keep_metrics_up_to(step_);
    network_.pack(context_, values_.span<float>(), true);
  }

  void update() {
    const Clock::time_point start = Clock::now();
    // Before an update and not after one: a model is saved with the draws that it was trained with last.
    if (config_.redraw > 0 && step_ > 0 && step_ % config_.redraw == 0) {
      network_.redraw(values_.span<float>(), static_cast<std::uint64_t>(step_ / config_.redraw));
      network_.pack(context_, values_.span<float>(), true);
    }
    const std::uint64_t seed = static_cast<std::uint64_t>(options_.seed);
    const std::int64_t count = options_.batch * options_.accumulate;
    examples_.read(
        context_, training_, config_, count,
        [&](std::int64_t i) { return shuffled_index(seed, step_ * count + i, training_.size()); },
        {Random(seed, Draw::masking, training_masks), [&](std::int64_t i) { return step_ * count + i; }});
    if (examples_.counted == 0)
      fail("train", "expected examples with targets, got none at step {}", step_ + 1);

    const std::span<float> gradients = gradients_.span<float>();
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    const std::size_t pass = static_cast<std::size_t>(options_.batch * config_.length);
    double nats = 0;
    for (std::int64_t a = 0; a < options_.accumulate; ++a) {
      const std::uint64_t passes = static_cast<std::uint64_t>(step_ * options_.accumulate + a);
      // Seeds of different passes and of different runs never meet: both are mixed through the generator
      // itself.
      const auto mixed = Random(seed, Draw::dropout, 0xffffffffu).block(passes);
      const Dropout dropout{static_cast<float>(config_.dropout), (std::uint64_t{mixed[0]} << 32) | mixed[1]};
      nats += transformer_.forward(context_, std::span(examples_.inputs).subspan(a * pass, pass),
                                   std::span(examples_.targets).subspan(a * pass, pass), options_.batch,
                                   config_.length, 1 / static_cast<float>(examples_.counted), dropout,
                                   examples_.lengths_of(a * options_.batch, options_.batch));
      if (!std::isfinite(nats)) fail_not_finite("loss", transformer_.first_not_finite(context_));
      transformer_.backward(context_, gradients);
    }
    const double norm = std::sqrt(kernels::sum_of_squares(context_, gradients));
    if (!std::isfinite(norm)) fail_not_finite("gradient", parameter_not_finite());
    const double factor = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1;

    ++step_;
    optimiser_.update(context_, values_.span<float>(), gradients, static_cast<float>(factor), step_);
    network_.pack(context_, values_.span<float>(), true);

    const double tokens = static_cast<double>(count * config_.length);
    report({step_, nats / std::numbers::ln2 / static_cast<double>(examples_.counted), norm,
            learning_rate(options_, step_), tokens / seconds_since(start)});
  }

  [[noreturn]] void fail_not_finite(const char* what, const std::string& where) const {
    const std::optional<std::int64_t> newest = checkpoints_.newest();
    fail("train",
         "expected a finite {}, got one that is not at step {}, first in {}; the last good checkpoint is {}",
         what, step_ + 1, where.empty() ? "the sum" : where,
         newest ? checkpoints_.path(*newest).string() : "none: the run had not saved one");
  }

  std::string parameter_not_finite() const {
    for (const ParameterTable::Row& row : network_.table().rows()) {
      const auto part = gradients_.span<float>().subspan(static_cast<std::size_t>(row.slot.offset()),
                                                         static_cast<std::size_t>(row.count));
      if (!std::isfinite(kernels::sum_of_squares(context_, part))) return row.name;
    }
    return {};
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
    const Evaluation evaluation = evaluate(context_, network_, validation_, options_.evaluate_examples,
                                           options_.batch, config_.masked());
    if (callbacks_.on_evaluation) callbacks_.on_evaluation(step_, evaluation);
    Json line = {
        {"step", step_}, {"validation_bits", evaluation.bits}, {"validation_tokens", evaluation.tokens}};
    if (config_.masked()) {
      line["validation_perplexity"] = evaluation.perplexity;
      line["validation_accuracy"] = evaluation.accuracy;
    }
    append_metrics(line);
    return evaluation;
  }

  void save() {
    checkpoints_.save(step_, config_, options_, network_.table(), values_.span<float>(), optimiser_);
    write_model(folder_, config_, network_.table(), values_.span<float>());
  }

  void append_metrics(const Json& line) const { append_line(folder_ / metrics_file, line.dump()); }

  /// Lines of updates that a killed run made after its last checkpoint will be written again.
  void keep_metrics_up_to(std::int64_t step) const {
    const fs::path path = folder_ / metrics_file;
    if (!fs::exists(path)) return;
    std::istringstream lines(read_file(path));
    std::string kept, line;
    while (std::getline(lines, line)) {
      const Json json = Json::parse(line, nullptr, false);
      if (json.is_object() && json.value("step", std::int64_t{0}) <= step && json.contains("step"))
        kept += line + "\n";
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
  Network network_;
  Tensor values_, gradients_;
  Optimiser optimiser_;
  Checkpoints checkpoints_;
  TrainingTransformer transformer_;
  Examples examples_;
  std::int64_t step_ = 0;
};

}  // namespace

TrainingResult train(Context& context, const ModelConfig& config, const TrainingOptions& options,
                     const Dataset& training, const Dataset& validation, const std::filesystem::path& folder,
                     bool resume, const TrainingCallbacks& callbacks) {
  check_ranges(options);
  return Trainer(context, config, options, training, validation, folder, callbacks).run(resume);
}

}  // namespace linnet
