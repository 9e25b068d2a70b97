#include <fmt/core.h>

#include <algorithm>

#include "attention/family.h"
#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "io/file.h"
#include "linnet/model.h"
#include "metrics_file.h"
#include "model/files.h"
#include "run_record.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, weights, cache, out;
};

/// Throws UsageError for a model without keys and values that are kept.
void check_caches(const Model& model) {
  const ModelConfig& config = model.config();
  const std::vector<Family> families = layer_families(config.attention, config.layers);
  if (std::ranges::find(families, Family::softmax) == families.end())
    fail<UsageError>("convert",
                     "expected a model with layers of softmax attention for --cache, got one with {} alone",
                     families_text(config.attention));
}

void run(const Arguments& arguments) {
  const std::filesystem::path out(arguments.out);
  if (std::filesystem::exists(out) && !(std::filesystem::is_directory(out) && std::filesystem::is_empty(out)))
    fail<UsageError>("convert", "expected --out to be a new or empty folder, got {}, which holds something",
                     out.string());
  const auto before = Model::load(arguments.model);
  note_better_evaluation(arguments.model);
  std::vector<std::string> settings;
  if (!arguments.weights.empty()) settings.push_back("model.weights=" + arguments.weights);
  if (!arguments.cache.empty()) settings.push_back("attention.cache=" + arguments.cache);
  if (settings.empty()) fail<UsageError>("convert", "expected --weights or --cache, got neither");
  if (!arguments.cache.empty()) check_caches(*before);
  const auto after = Model::load(arguments.model, settings);
  if (out.has_parent_path()) create_folders(out.parent_path());
  AtomicFolder folder(out, AtomicFolder::Place::new_or_empty);
  after->save(folder.path());
  // The columns.json of an older run does not say how they were read; its run.toml does.
  if (const auto columns = columns_of_model(arguments.model); columns && !columns->text().empty())
    write_file_atomically(folder.path() / columns_file, columns->text());
  folder.commit();
  fmt::print("{}: {} weights, {} parameters in {:.1f} MB (before: {} in {:.1f} MB)\n", out.string(),
             name_of(after->config().weights), after->parameter_count(),
             1e-6 * static_cast<double>(after->weight_bytes()), name_of(before->config().weights),
             1e-6 * static_cast<double>(before->weight_bytes()));
  if (!arguments.cache.empty())
    fmt::print("keys and values of softmax are kept as {} (before: {})\n",
               name_of(after->config().attention.softmax.cache),
               name_of(before->config().attention.softmax.cache));
}

}  // namespace

void add_convert(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("convert", "Write a model with narrower weights or caches");
  command.footer(
      "The copy has bf16 weights in its dense layers, or int8 weights with one scale per output. "
      "Embeddings,\n"
      "norms, biases and the output head remain f32. The copy runs everywhere, and faster on machines with\n"
      "products of these types. Caches of bf16 hold the keys and values of softmax attention in half the\n"
      "memory.\n"
      "Example: linnet convert runs/digits --weights int8 --out digits-int8\n"
      "         linnet convert runs/softmax --cache bf16 --out softmax-bf16");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--weights", arguments->weights, "f32, bf16 or int8")
      .check(one_of({"f32", "bf16", "int8"}));
  command.add_option("--cache", arguments->cache, "f32 or bf16: keys and values that softmax attention keeps")
      .check(one_of({"f32", "bf16"}));
  command.add_option("--out", arguments->out, "folder of the new model").required();
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
