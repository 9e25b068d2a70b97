#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <csignal>

#include "base/fail.h"
#include "base/memory.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "io/file.h"
#include "model/config.h"
#include "pictures.h"
#include "report.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> interrupted = false;

void on_interrupt(int) {
  interrupted = true;
  std::signal(SIGINT, SIG_DFL);  // a second Ctrl-C ends the program at once
}

struct Arguments {
  std::string config, out, data;
  std::vector<std::string> settings;
  bool resume = false, json = false, list = false;
  int threads = 0;
};

constexpr std::int64_t sample_pictures = 64;
constexpr std::int64_t sample_text = 400;

/// The samples of one step: a grid of pictures or a text.
void draw(const fs::path& folder, std::int64_t step, const std::shared_ptr<const Model>& model, int threads) {
  const ModelConfig& config = model->config();
  fs::create_directories(folder / "samples");
  if (config.image_height > 0) {
    const auto examples =
        draw_examples(model, {.count = sample_pictures, .session = {.threads = threads}}, nullptr);
    write_png(folder / "samples" / fmt::format("{}.png", step), picture_grid(config, examples));
    return;
  }
  Session session(model, 1, {.threads = threads});
  std::string text;
  std::int32_t token = 0;
  for (std::int64_t i = 0; i < std::min(config.length, sample_text); ++i) {
    session.step(std::span(&token, 1));
    text += config.vocabulary == 256 ? std::string(1, static_cast<char>(token)) : fmt::format("{} ", token);
  }
  write_file_atomically(folder / "samples" / fmt::format("{}.txt", step), text);
}

RunConfig config_of(const Arguments& arguments) {
  RunConfig config;
  config.load(arguments.config, arguments.settings);
  if (!arguments.data.empty()) set_source(config.data, arguments.data);
  if (config.data.kind == "digits")
    require_memory("the digits",
                   1.1 * static_cast<double>(config.data.examples * config.data.size * config.data.size));
  return config;
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
      show(fmt::format("training on {} examples of {} ({} tokens each)", examples_, config_.data.kind,
                       config_.model.length));
    }
    bits_ = report.bits;
    progress_.show(fmt::format(
        "step {}/{}  {:.4f} bits/token  norm {:.2f}  rate {:.2e}  {:.0f} tokens/s  {} left", report.step,
        config_.training.steps, report.bits, report.gradient_norm, report.learning_rate,
        report.tokens_per_second, duration_text(seconds_left(report.step))));
  }

  void show(std::int64_t step, const Evaluation& evaluation) {
    const std::string hidden =
        config_.model.masked()
            ? fmt::format(", perplexity {:.3f}, accuracy {:.1f} % of {} hidden tokens", evaluation.perplexity,
                          100 * evaluation.accuracy, evaluation.tokens)
            : "";
    show(fmt::format("step {}: {:.4f} bits/token on {} validation examples{}", step, evaluation.bits,
                     evaluation.examples, hidden));
  }

  /// Since training began.
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  /// Per token, of the last step that was shown.
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
  double bits_ = 0;
};

TrainingCallbacks callbacks_of(Display& display, const ModelConfig& model, const fs::path& folder,
                               int threads) {
  TrainingCallbacks callbacks;
  callbacks.on_message = [&](const std::string& message) { display.show(message); };
  callbacks.on_step = [&](const StepReport& report) { display.show(report); };
  callbacks.on_evaluation = [&](std::int64_t step, const Evaluation& evaluation) {
    display.show(step, evaluation);
  };
  if (has_recurrent_form(model))
    callbacks.draw_samples = [=](std::int64_t step, const std::shared_ptr<const Model>& trained) {
      draw(folder, step, trained, threads);
    };
  callbacks.should_stop = [] { return interrupted.load(); };
  return callbacks;
}

Json json_of(const TrainingResult& result, const fs::path& folder, double seconds, double bits, bool masked) {
  Json json = {{"out", folder.string()},
               {"step", result.step},
               {"finished", result.finished},
               {"seconds", seconds},
               {"bits", bits}};
  if (result.evaluation) json["validation_bits"] = result.evaluation->bits;
  if (result.evaluation && masked) {
    json["validation_perplexity"] = result.evaluation->perplexity;
    json["validation_accuracy"] = result.evaluation->accuracy;
  }
  return json;
}

void run(const Arguments& arguments) {
  Context context(arguments.threads);
  RunConfig config = config_of(arguments);
  Progress progress;
  progress.hint(fmt::format("reading {} data", config.data.kind));
  const Datasets data = open_datasets(config.data);
  config.fit_to_data(*data.training);
  config.check_memory(true);

  const fs::path folder = arguments.out;
  Display display(progress, config, data.training->size());
  std::signal(SIGINT, on_interrupt);
  const TrainingResult result =
      train(context, config.model, config.training, *data.training, *data.validation, folder,
            arguments.resume, callbacks_of(display, config.model, folder, context.threads()));
  const double seconds = display.seconds();
  display.show(fmt::format("{} after {} steps in {}: {}", result.finished ? "finished" : "stopped",
                           result.step, duration_text(seconds), folder.string()));
  if (arguments.json) print_json(json_of(result, folder, seconds, display.bits(), config.model.masked()));
}

void list_options() {
  RunConfig config;
  Options options = config.options();
  for (const Options::Row& row : options.rows())
    fmt::print("{:<28} {:<8} {:<12} {:<28} {}\n", row.key, row.type, row.value, row.range, row.help);
}

}  // namespace

void add_train(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("train", "Train a model from a configuration");
  command.footer("Example: linnet train digits --out runs/digits --set training.steps=500");
  const Option config = command.add_option("config,--config", arguments->config,
                                           "TOML file, or the name of a shipped configuration");
  const Option out =
      command.add_option("--out", arguments->out, "folder of the run: model, metrics, samples, checkpoints");
  command.add_option("--set", arguments->settings,
                     "replace a value of the configuration, key=value; may be repeated");
  command.add_option("--data", arguments->data,
                     "digits, copy, a folder of MNIST or CIFAR-10 files, a text file or a FASTA file");
  command.add_flag("--resume", arguments->resume, "continue from the newest checkpoint of the run");
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.add_flag("--options", arguments->list, "list all keys of the configuration and exit");
  command.callback([=] {
    if (arguments->list) return list_options();
    for (const Option& option : {config, out}) option.require_given();
    run(*arguments);
  });
}

}  // namespace linnet
