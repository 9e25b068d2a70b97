#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <ctime>
#include <limits>

#include "attention/family.h"
#include "base/fail.h"
#include "base/names.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "data/files.h"
#include "data/series.h"
#include "data_doubts.h"
#include "io/file.h"
#include "linnet/version.h"
#include "metrics_file.h"
#include "model/config.h"
#include "pictures.h"
#include "rank_threads.h"
#include "report.h"
#include "run_groups.h"
#include "run_record.h"
#include "token_text.h"
#include "training/checkpoint.h"
#include "training/config.h"
#include "training/examples.h"
#include "training/rank_agreement.h"
#include "training/run_config.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

constexpr int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};

/// When the first signal came, in milliseconds of a clock that never goes back; 0 before.
std::atomic<std::int64_t> interrupted_at = 0;

std::int64_t milliseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

/// A later signal ends the program at once, unless it belongs to the first one: a terminal that closes sends
/// SIGHUP twice, and a system that stops a service may send it behind SIGTERM.
void on_interrupt(int signal) {
  constexpr std::int64_t together = 100;  // milliseconds
  std::int64_t none = 0;
  if (interrupted_at.compare_exchange_strong(none, milliseconds_now())) {
    Communicator::stop_requested();
    return;
  }
  if (signal == SIGHUP || milliseconds_now() - interrupted_at < together) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// A program that nohup starts ignores SIGHUP, and goes on doing so. One whose standard error is no longer
/// read goes on without progress.
void stop_on_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int signal : stop_signals)
    if (std::signal(signal, on_interrupt) == SIG_IGN && signal == SIGHUP) std::signal(signal, SIG_IGN);
}

struct Arguments {
  std::string config, out, data, resume, initial;
  std::vector<std::string> settings;
  bool initial_partial = false, json = false, list = false;
  int threads = 0;
};

/// What a resume may change: not the parameters that an update leads to, except how many updates there are.
bool may_change(const std::string& key) {
  return key == "data.path" || key == "data.target" || key == "data.validation" || key == "data.test" ||
         key == "data.validation_target" || key == "data.test_target" || key == "data.tokenizer" ||
         key == "training.steps" || std::ranges::count(keys_of_the_loop(), key) > 0;
}

constexpr std::int64_t sample_pictures = 64;
constexpr std::int64_t sample_text = 400;

/// The samples of one step: a grid of pictures or a text.
void draw(const fs::path& folder, std::int64_t step, const std::shared_ptr<const Model>& model, bool residues,
          int threads) {
  const ModelConfig& config = model->config();
  create_folders(folder / "samples");
  if (config.image_height > 0) {
    const auto examples =
        draw_examples(model, {.count = sample_pictures, .session = {.threads = threads}}, nullptr);
    write_png(folder / "samples" / fmt::format("{}.png", step), picture_grid(config, examples));
    return;
  }
  Session session(model, 1, {.threads = threads});
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(config.length, sample_text)));
  for (std::int32_t& token : tokens) session.step(std::span(&token, 1));
  write_file_atomically(folder / "samples" / fmt::format("{}.txt", step),
                        TokenText(*model, residues).text(tokens));
}

RunRecord new_record(const Arguments& arguments) {
  RunRecord record;
  load(record.config, arguments.config, arguments.settings);
  set_data(record.config, arguments.data, arguments.settings);
  check_source(record.config.data);
  record.version = version();
  record.command = own_command_line();
  record.started = utc_now();
  if (!arguments.initial.empty()) record.initial = absolute_path(arguments.initial).string();
  record.initial_partial = arguments.initial_partial;
  return record;
}

/// Throws UsageError where `changed` would train another model than the run's.
void check_changes(RunRecord& run, RunRecord& changed, const std::string& folder) {
  const std::vector<Setting> old = run.config.settings(), now = changed.config.settings();
  for (std::size_t i = 0; i < old.size(); ++i)
    if (old[i].value != now[i].value &&
        (!may_change(old[i].key) || old[i].value.empty() || now[i].value.empty()))
      fail<UsageError>("resume", "expected {} = {} as in the run {}, got {}", old[i].key, old[i].value,
                       folder, now[i].value);
}

RunRecord resumed_record(const Arguments& arguments) {
  RunRecord run = RunRecord::read(arguments.resume), changed = run;
  for (const std::string& setting : arguments.settings) changed.config.set(setting);
  set_data(changed.config, arguments.data, {"data.kind=" + run.config.data.kind});
  check_changes(run, changed, arguments.resume);
  changed.resumed = own_command_line();
  return changed;
}

void check_fingerprint(const RunRecord& run, const DataFingerprint& found) {
  if (found != run.data)
    fail<UsageError>("resume", "expected the data that the run began with, {}, got {} in {}", run.data.text(),
                     found.text(), run.config.data.path);
}

/// What a model's examples consist of.
const char* steps_of(const ModelConfig& model) {
  return model.columns == 0 && model.field_sizes().size() == 1 ? "tokens" : "steps";
}

/// Shows a run as it goes on.
class Display {
 public:
  Display(Progress& progress, const RunConfig& config, std::int64_t examples)
      : progress_(progress), config_(config), examples_(examples) {}

  void show(const std::string& message) { progress_.show(message, true); }

  void show(const StepReport& report) {
    if (first_step_ == 0) {
      first_step_ = report.step;
      show(fmt::format("training on {} examples of {} ({} {} each)", examples_, config_.data.kind,
                       config_.model.length, steps_of(config_.model)));
    }
    bits_ = report.bits;
    // What fits no narrow terminal comes last.
    progress_.show(fmt::format("step {}/{}  {:.4f} bits/{}  {:.0f} {}/s  {} left  norm {:.2f}  rate {:.2e}",
                               report.step, config_.training.steps, report.smoothed_bits,
                               unit_of(config_.model), report.tokens_per_second, steps_of(config_.model),
                               duration_text(seconds_left(report.step)), report.gradient_norm,
                               report.learning_rate));
  }

  void show(std::int64_t step, const Evaluation& evaluation) {
    std::string more;
    if (config_.model.masked())
      more = fmt::format(", perplexity {:.3f}, accuracy {:.1f} % of {} hidden tokens", evaluation.perplexity,
                         100 * evaluation.accuracy, evaluation.tokens);
    else if (config_.model.classifies())
      more = fmt::format(", accuracy {:.2f} %", 100 * evaluation.accuracy);
    else if (config_.model.target_count() > 0)
      more = fmt::format(", squared error {:.4f}, absolute error {:.4f}", evaluation.squared_error,
                         evaluation.absolute_error);
    show(fmt::format("step {}: {:.4f} bits/{} on {} validation examples{}", step, evaluation.bits,
                     unit_of(config_.model), evaluation.examples, more));
  }

  /// Since training began.
  double seconds() const { return seconds_since(start_); }
  /// Per token, of the last step that was shown; NaN where none was.
  double bits() const { return bits_; }

 private:
  double seconds_left(std::int64_t step) const {
    const double of_step = seconds() / static_cast<double>(step - first_step_ + 1);
    const double left = of_step * static_cast<double>(config_.training.steps - step);
    return config_.training.minutes > 0 ? std::min(left, 60 * config_.training.minutes - seconds()) : left;
  }

  Progress& progress_;
  const RunConfig& config_;
  std::int64_t examples_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::int64_t first_step_ = 0;
  double bits_ = std::numeric_limits<double>::quiet_NaN();
};

/// Of weights that go on for other tokens or labels than those that they have learned, which have the same
/// numbers.
void warn_of_other_names(const Model& initial, const Dataset& data, Display& display) {
  const ModelAssets& assets = initial.assets();
  if (initial.config().vocabulary == data.vocabulary() && assets.tokenizer != data.tokenizer())
    display.show(
        "warning: the initial model has another tokenizer than the data: weights of its tokens go to others "
        "of the same numbers");
  const std::vector<std::string> names = label_names(data);
  if (assets.class_names.size() == names.size() && assets.class_names != names)
    display.show(
        "warning: the initial model has other labels than the data, or another order of them: weights of its "
        "labels go to others of the same numbers");
}

/// The model that a run starts from, or null.
std::shared_ptr<const Model> initial_model(const RunRecord& record, const Dataset& data, Display& display) {
  if (record.initial.empty()) return nullptr;
  std::shared_ptr<const Model> model = Model::load(record.initial);
  warn_of_other_names(*model, data, display);
  if (!record.initial_partial) return model;
  std::vector<std::string> differences;
  const auto seed = static_cast<std::uint64_t>(record.config.training.seed);
  auto adapted = adapt_model(*model, record.config.model, seed, &differences);
  for (const std::string& difference : differences)
    display.show(fmt::format("in {}, {}", record.initial, difference));
  if (!differences.empty()) display.show("what the two do not share is drawn anew");
  return adapted;
}

/// Of settings on the command line that change nothing, and of those that are seldom meant. A default is what
/// else replaces, as attention.decay=none beside another family.
void warn_of_settings(const std::vector<std::string>& settings, const RunConfig& config, Display& display) {
  const RunSettings defaults = settings_of(RunConfig());
  const ModelConfig& model = config.model;
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    if (setting == key + "=" + defaults.at(key)) continue;
    const std::string why = key.starts_with("attention.") ? without_effect(model.attention, model.layers, key)
                            : key.starts_with("model.")   ? without_effect(model, key)
                                                          : without_effect(config.training, key);
    if (!why.empty()) display.show(fmt::format("warning: {} has no effect {}", key, why));
  }
  for (const std::string& sentence : doubtful_settings(model.attention, model.layers))
    display.show("warning: " + sentence);
  if (config.training.warmup >= config.training.steps)
    display.show(
        fmt::format("warning: training.warmup = {} lasts for all {} updates, so that the learning rate never "
                    "falls; a tenth of training.steps is usual",
                    config.training.warmup, config.training.steps));
  if (config.training.schedule == Schedule::step && config.training.step_at >= config.training.steps)
    display.show(fmt::format(
        "warning: training.step_at = {} comes behind the last of {} updates, so that the learning "
        "rate never falls",
        config.training.step_at, config.training.steps));
}

/// How a series is read, which its file does not say.
void show_columns(const Dataset& data, Display& display) {
  const Series* series = first_series(data);
  if (series == nullptr) return;
  constexpr std::size_t most_shown = 300;
  display.show(fmt::format("columns: {}; time: {}",
                           shortened(fmt::format("{}", fmt::join(series->columns, ", ")), most_shown),
                           series->time.empty() ? "none" : series->time));
}

TrainingCallbacks callbacks_of(Display& display, const RunConfig& config, const fs::path& folder,
                               int threads) {
  const ModelConfig& model = config.model;
  const bool residues = config.data.kind == "fasta";
  TrainingCallbacks callbacks;
  callbacks.on_message = [&](const std::string& message) { display.show(message); };
  callbacks.on_step = [&](const StepReport& report) { display.show(report); };
  callbacks.on_evaluation = [&](std::int64_t step, const Evaluation& evaluation) {
    display.show(step, evaluation);
  };
  if (has_recurrent_form(model) && model.shifted() && model.columns == 0 && model.field_sizes().size() == 1 &&
      !model.has_encoder())
    callbacks.draw_samples = [=](std::int64_t step, const std::shared_ptr<const Model>& trained) {
      draw(folder, step, trained, residues, threads);
    };
  callbacks.should_stop = [] { return interrupted_at != 0; };
  return callbacks;
}

Json json_of(const TrainingResult& result, const fs::path& folder, double seconds, double bits,
             const ModelConfig& model) {
  Json json = {{"out", folder.string()},
               {"step", result.step},
               {"finished", result.finished},
               {"seconds", seconds},
               {"bits", std::isnan(bits) ? Json(nullptr) : Json(bits)}};
  if (result.best_step >= 0) {
    json["best_step"] = result.best_step;
    json["best_validation_bits"] = result.best_bits;
  }
  if (result.evaluation) json["validation_bits"] = result.evaluation->bits;
  if (result.evaluation && model.masked()) json["validation_perplexity"] = result.evaluation->perplexity;
  if (result.evaluation && (model.masked() || model.classifies()))
    json["validation_accuracy"] = result.evaluation->accuracy;
  if (result.evaluation && model.target_count() > 0) {
    json["validation_squared_error"] = result.evaluation->squared_error;
    json["validation_absolute_error"] = result.evaluation->absolute_error;
  }
  return json;
}

void run(const Arguments& arguments, Communicator& ranks) {
  const bool first = ranks.rank() == 0;
  const bool resume = !arguments.resume.empty();
  require_agreement(ranks, {{"resume", resume ? "true" : "false"}});
  Context context(threads_of_rank(ranks, arguments.threads));
  RunRecord record = resume ? resumed_record(arguments) : new_record(arguments);
  RunConfig& config = record.config;
  Progress progress(first);
  progress.hint(fmt::format("reading {} data", config.data.kind));
  const Datasets data = open_datasets(config.data);
  const DataFingerprint fingerprint = fingerprint_of(config.data);
  require_agreement(ranks, {{"data", fingerprint.text()}});
  if (resume) check_fingerprint(record, fingerprint);
  record.data = fingerprint;
  config.fit_to_data(*data.training);
  config.check_memory(true, ranks.size());

  const fs::path folder = resume ? arguments.resume : arguments.out;
  Display display(progress, config, data.training->size());
  TrainingCallbacks callbacks = callbacks_of(display, config, folder, context.threads());
  callbacks.on_begin = [&] {
    record.write(folder);
    show_columns(*data.training, display);
  };
  const bool begins = !resume || !Checkpoints(folder).any();
  if (first && begins && !record.initial.empty()) note_better_evaluation(record.initial);
  const std::shared_ptr<const Model> initial =
      begins ? initial_model(record, *data.training, display) : nullptr;
  warn_of_settings(arguments.settings, config, display);
  for (const std::string& sentence : doubts_of(config.data, *data.training, data.validation.get()))
    display.show("warning: " + sentence);
  stop_on_signals();
  const TrainingResult result = train(context, config.model, config.training, *data.training,
                                      *data.validation, folder, resume, callbacks, nullptr, initial, &ranks);
  const double seconds = display.seconds();
  display.show(fmt::format("{} after {} steps in {}: {}", result.finished ? "finished" : "stopped",
                           result.step, duration_text(seconds), folder.string()));
  if (result.best_step >= 0 && result.best_step != result.step)
    display.show(fmt::format("best {:.4f} bits/{} at step {}: {}", result.best_bits, unit_of(config.model),
                             result.best_step, (folder / "best").string()));
  if (arguments.json && first) print_json(json_of(result, folder, seconds, display.bits(), config.model));
}

void list_options() {
  for (const Setting& row : RunConfig().settings())
    fmt::print("{:<28} {:<8} {:<12} {:<28} {}\n", row.key, row.type, row.value, row.range, row.help);
}

}  // namespace

void add_train(Command& program, Communicator& ranks) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("train", "Train a model from a configuration");
  command.footer(
      "Examples: linnet train digits --out runs/digits --set training.steps=500\n"
      "          linnet train --resume runs/digits --set training.steps=1000");
  const Option config = command.add_option("config,--config", arguments->config,
                                           "TOML file, or the name of a shipped configuration");
  const Option out =
      command.add_option("--out", arguments->out, "folder of the run: model, metrics, samples, checkpoints");
  command.add_option("--set", arguments->settings,
                     "replace a value of the configuration, key=value; may be repeated");
  command.add_option(
      "--data", arguments->data,
      "digits, copy, reverse, a folder of MNIST, CIFAR-10, PNG or JPEG files, or files of text, FASTA, "
      "tokens, series or sound");
  Option resume = command.add_option(
      "--resume", arguments->resume,
      "continue the run in this folder from its newest checkpoint, with its own configuration and data");
  resume.excludes(config).excludes(out);
  Option initial = command.add_option("--init", arguments->initial, "start from the weights of this model");
  initial.excludes(resume);
  command
      .add_flag("--init-partial", arguments->initial_partial,
                "draw anew the weights that --init has not, or has in another shape; the tokens keep theirs")
      .needs(initial);
  add_threads_of_rank(command, arguments->threads);
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.add_flag("--options", arguments->list, "list all keys of the configuration and exit");
  command.callback([=, &ranks] {
    if (arguments->list) return list_options();
    if (resume.count() == 0)
      for (const Option& option : {config, out}) option.require_given();
    run(*arguments, ranks);
  });
}

}  // namespace linnet
