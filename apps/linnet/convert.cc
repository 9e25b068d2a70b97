#include <fmt/core.h>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "io/file.h"
#include "linnet/model.h"
#include "run_columns.h"
#include "run_record.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, weights, out;
};

void run(const Arguments& arguments) {
  const std::filesystem::path out(arguments.out);
  if (std::filesystem::exists(out))
    fail<UsageError>("convert", "expected --out to be a new folder, got {}, which exists", out.string());
  const auto before = Model::load(arguments.model);
  const std::string setting = "model.weights=" + arguments.weights;
  const auto after = Model::load(arguments.model, std::span(&setting, 1));
  if (out.has_parent_path()) create_folders(out.parent_path());
  AtomicFolder folder(out);
  after->save(folder.path());
  if (const auto run = run_of(arguments.model))
    if (const auto columns = RunColumns::read(*run)) columns->write(folder.path());
  folder.commit();
  fmt::print("{}: {} weights, {} parameters in {:.1f} MB (before: {} in {:.1f} MB)\n", out.string(),
             name_of(after->config().weights), after->parameter_count(),
             1e-6 * static_cast<double>(after->weight_bytes()), name_of(before->config().weights),
             1e-6 * static_cast<double>(before->weight_bytes()));
}

}  // namespace

void add_convert(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("convert", "Write a model with narrower weights");
  command.footer(
      "The copy has bf16 weights in its dense layers, or int8 weights with one scale per output. "
      "Embeddings,\n"
      "norms, biases and the output head remain f32. The copy runs everywhere, and faster on machines with\n"
      "products of these types.\n"
      "Example: linnet convert runs/digits --weights int8 --out digits-int8");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--weights", arguments->weights, "f32, bf16 or int8")
      .check(one_of({"f32", "bf16", "int8"}))
      .required();
  command.add_option("--out", arguments->out, "folder of the new model").required();
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
