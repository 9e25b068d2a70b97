#include <fmt/core.h>

#include <numbers>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "io/file.h"
#include "outputs.h"
#include "report.h"
#include "run_record.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model, data, data_kind, attention, feature_map, per_token, split = "validation";
  std::int64_t examples = 0, batch = 8, features = 0;
  bool json = false;
  int threads = 0;
};

/// What replaces the model's own attention. A feature map's name stands for the linear family with that map.
std::vector<std::string> settings_of(const Arguments& arguments) {
  std::vector<std::string> settings;
  const auto set = [&](const char* key, const std::string& value) {
    settings.push_back(fmt::format("attention.{}={}", key, value));
  };
  if (is_feature_map(arguments.attention)) {
    if (!arguments.feature_map.empty() && arguments.feature_map != arguments.attention)
      fail<UsageError>("evaluate", "expected one feature map, got --attention {} and --feature-map {}",
                       arguments.attention, arguments.feature_map);
    set("family", "linear");
    set("feature_map", arguments.attention);
  } else if (!arguments.attention.empty()) {
    set("family", arguments.attention);
  }
  if (!arguments.feature_map.empty()) set("feature_map", arguments.feature_map);
  if (arguments.features > 0) set("features", fmt::format("{}", arguments.features));
  return settings;
}

/// The keys by which `data` become tokens and numbers, as the data of a run do.
void take_form(DataOptions& data, const DataOptions& of_run) {
  data.columns = of_run.columns;
  data.time = of_run.time;
  data.missing = of_run.missing;
  data.horizon = of_run.horizon;
  data.sound = of_run.sound;
  data.tokenizer = of_run.tokenizer;
}

/// What to evaluate on: --data, or the data of the model's run.
DataOptions data_of(const ModelConfig& config, const Arguments& arguments) {
  const std::optional<fs::path> run = run_of(arguments.model);
  std::string kind = arguments.data_kind;
  if (arguments.data.empty()) {
    if (!run)
      fail<UsageError>("evaluate", "expected --data for {}, which is no training run, got none",
                       arguments.model);
    const DataOptions of_run = RunRecord::read(*run).config.data;
    return kind.empty() ? of_run : data_for_model(config, of_run.path, kind);
  }
  if (kind.empty() && run && !fs::is_directory(arguments.data) && fs::exists(arguments.data)) {
    // The name of a file says less about its kind than the run.
    const std::string& of_run = RunRecord::read(*run).config.data.kind;
    if (of_run == "text" || of_run == "bytes" || of_run == "fasta" || of_run == "series" || of_run == "sound")
      kind = of_run;
  }
  DataOptions data = data_for_model(config, arguments.data, kind);
  if (run) take_form(data, RunRecord::read(*run).config.data);
  return data;
}

void run(const Arguments& arguments) {
  check_outputs("evaluate", {{"--per-token", arguments.per_token}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  Context context(arguments.threads);
  const std::vector<std::string> settings = settings_of(arguments);
  const std::shared_ptr<const Model> model = Model::load(arguments.model, settings);
  const DataOptions source = data_of(model->config(), arguments);
  const std::unique_ptr<const Dataset> data =
      open_dataset(source, arguments.split == "training" ? Split::training : Split::validation);
  const auto start = std::chrono::steady_clock::now();
  std::string lines = "example,position,token,log_probability,bits\n";
  TokenLossCallback on_token;
  if (!arguments.per_token.empty())
    on_token = [&](const TokenLoss& loss) {
      lines += fmt::format("{},{},{},{:.7g},{:.7g}\n", loss.example, loss.position, loss.token, 0 - loss.nats,
                           loss.nats / std::numbers::ln2);
    };
  const Evaluation result =
      evaluate(context, *model, *data, arguments.examples, arguments.batch, true, on_token);
  if (on_token) write_file_atomically(arguments.per_token, lines);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (arguments.json) {
    print_json({{"model", arguments.model},
                {"family", name_of(model->config().attention.family)},
                {"data", !arguments.data.empty() ? arguments.data
                         : source.path.empty()   ? source.kind
                                                 : source.path},
                {"split", arguments.split},
                {"examples", result.examples},
                {"tokens", result.tokens},
                {"bits_per_token", result.bits},
                {"perplexity", result.perplexity},
                {"accuracy", result.accuracy},
                {"non_positive_denominators", result.non_positive},
                {"seconds", seconds}});
    return;
  }
  fmt::print(
      "{:.4f} bits per token, perplexity {:.3f}, accuracy {:.1f} % ({} tokens of {} examples, {:.1f} s)\n",
      result.bits, result.perplexity, 100 * result.accuracy, result.tokens, result.examples, seconds);
  if (result.non_positive > 0)
    fmt::print("{:.2g} % of the queries had no positive denominator and gave zeros\n",
               100 * result.non_positive);
}

}  // namespace

void add_evaluate(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      program.add_subcommand("evaluate", "Bits per token, perplexity and accuracy on validation data");
  command.footer(
      "Bits per token are bits per dimension for pictures (every pixel counts) and bits per byte for text.\n"
      "For an encoder only the hidden tokens count. They are the same in every evaluation.\n"
      "Example: linnet evaluate runs/digits\n"
      "         linnet evaluate runs/softmax --data digits --attention favor --features 256\n"
      "         linnet evaluate runs/text --data book.txt --per-token tokens.csv");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option(
      "--data", arguments->data,
      "digits, copy, a folder of MNIST or CIFAR-10 files, a text file or a FASTA file; default: the "
      "data of the run");
  command
      .add_option(
          "--data-kind", arguments->data_kind,
          "kind of the data; default: that of the run, or from the name of --data and the files in it")
      .check(one_of(data_kinds()));
  command.add_option("--split", arguments->split, "part of the data")
      .check(one_of({"validation", "training"}));
  command.add_option("--examples", arguments->examples, "number of examples, evenly spaced; default: all")
      .check(whole(1, most_count));
  command.add_option("--batch", arguments->batch, "examples per pass").check(whole(1, most_count));
  command.add_option("--per-token", arguments->per_token,
                     "CSV file for the log-probability of every counted token, in nats, and its bits");
  command.add_option(
      "--attention", arguments->attention,
      "use the weights with another attention family, or with a feature map of the linear family "
      "(for example favor)");
  command.add_option("--feature-map", arguments->feature_map, "use the weights with another feature map");
  command.add_option("--features", arguments->features, "number of features of a random map; default: E ln E")
      .check(whole(1, most_count));
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
