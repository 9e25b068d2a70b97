#include <fmt/core.h>

#include "base/threads.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "report.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, attention, feature_map, split = "validation";
  std::int64_t examples = 0, batch = 8;
  bool json = false;
  int threads = 0;
};

void run(const Arguments& arguments) {
  if (arguments.threads > 0) set_thread_count(arguments.threads);
  std::vector<std::string> settings;
  if (!arguments.attention.empty()) settings.push_back("attention.family=" + arguments.attention);
  if (!arguments.feature_map.empty()) settings.push_back("attention.feature_map=" + arguments.feature_map);
  const std::shared_ptr<const Model> model = Model::load(arguments.model, settings);
  const Datasets data = open_datasets(data_for_model(model->config(), arguments.data));
  const Dataset& dataset = arguments.split == "training" ? *data.training : *data.validation;
  const auto start = std::chrono::steady_clock::now();
  const Evaluation result = evaluate(*model, dataset, arguments.examples, arguments.batch, true);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (arguments.json) {
    fmt::print("{}\n", Json{{"model", arguments.model},
                            {"family", model->config().family},
                            {"data", arguments.data},
                            {"split", arguments.split},
                            {"examples", result.examples},
                            {"tokens", result.tokens},
                            {"bits_per_token", result.bits},
                            {"perplexity", result.perplexity},
                            {"accuracy", result.accuracy},
                            {"seconds", seconds}}
                           .dump(2));
    return;
  }
  fmt::print(
      "{:.4f} bits per token, perplexity {:.3f}, accuracy {:.1f} % ({} tokens of {} examples, {:.1f} s)\n",
      result.bits, result.perplexity, 100 * result.accuracy, result.tokens, result.examples, seconds);
}

}  // namespace

void add_evaluate(CLI::App& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      program.add_subcommand("evaluate", "Bits per token, perplexity and accuracy on held-out data");
  command->footer(
      "Bits per token are bits per dimension for pictures (every pixel counts) and bits per byte for text.\n"
      "Of an encoder the hidden tokens count, the same ones in every evaluation.\n"
      "Example: linnet evaluate runs/digits --data digits");
  command->add_option("model", arguments->model, "folder of a model or of a run")->required();
  command
      ->add_option("--data", arguments->data,
                   "digits, copy, a folder of MNIST's files, a text or a FASTA file")
      ->required();
  command->add_option("--split", arguments->split, "which part of the data")
      ->check(one_of({"validation", "training"}));
  command->add_option("--examples", arguments->examples, "evenly spaced examples; all by default")
      ->check(whole(1, most_count));
  command->add_option("--batch", arguments->batch, "examples at a time")->check(whole(1, most_count));
  command->add_option("--attention", arguments->attention, "use the weights under another attention family");
  command->add_option("--feature-map", arguments->feature_map, "use the weights with another feature map");
  command->add_option("--threads", arguments->threads, "threads to use; all by default")
      ->check(whole(1, most_threads));
  command->add_flag("--json", arguments->json, "print the result as JSON");
  command->callback([=] { run(*arguments); });
}

}  // namespace linnet
