#include <fmt/core.h>

#include <algorithm>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "given_data.h"
#include "io/csv.h"
#include "io/file.h"
#include "outputs.h"
#include "report.h"
#include "training/examples.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, data_kind, out, split = "validation";
  std::int64_t examples = 0, batch = 8;
  bool json = false;
  int threads = 0;
};

void run(const Arguments& arguments) {
  check_outputs("classify", {{"--out", arguments.out}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  const std::shared_ptr<const Model> model = Model::load(arguments.model);
  const ModelConfig& config = model->config();
  if (!config.classifies())
    fail<UsageError>("classify", "expected a classifier (model.objective = \"classify\"), got \"{}\"",
                     name_of(config.objective));
  const std::unique_ptr<const Dataset> data = open_dataset(
      data_of("classify", config, {arguments.model, arguments.data, arguments.data_kind, arguments.split}),
      split_named(arguments.split));
  check_fit(config, *data);
  check_assets(model->assets(), *data);
  const std::vector<std::string>& names = model->assets().class_names;
  const std::int64_t size = data->size();
  const std::int64_t count = arguments.examples == 0 ? size : std::min(arguments.examples, size);
  Context context(arguments.threads);
  Examples examples;
  Progress progress;
  std::string lines =
      fmt::format("example,label,given,probability{}\n", names.empty() ? "" : ",label_name,given_name");
  const auto name_of_label = [&](std::int64_t label) {
    return label < 0 ? std::string() : names[static_cast<std::size_t>(label)];
  };
  Json rows = Json::array();
  std::int64_t right = 0;
  for (std::int64_t first = 0; first < count; first += arguments.batch) {
    const std::int64_t here = std::min(arguments.batch, count - first);
    const auto index = [&](std::int64_t i) { return (first + i) * size / count; };
    const Batch batch = examples.read(context, *data, config, here, index, {Random(0, Draw::masking), index});
    check_batch("classify", config, batch);
    const Tensor probabilities = model->classify(context, {.batch = here,
                                                           .length = config.length,
                                                           .tokens = batch.inputs,
                                                           .values = batch.values,
                                                           .key_lengths = batch.key_lengths});
    for (std::int64_t i = 0; i < here; ++i) {
      const float* row = probabilities.view<float>().at(i);
      const auto given = std::max_element(row, row + config.classes) - row;
      const std::int32_t label = batch.labels[static_cast<std::size_t>(i)];
      right += given == label;
      lines += fmt::format("{},{},{},{:.6g}", index(i), label, given, row[given]);
      Json object = {{"example", index(i)}, {"label", label}, {"given", given}, {"probability", row[given]}};
      if (!names.empty()) {
        lines += fmt::format(",{},{}", csv_cell(name_of_label(label)), csv_cell(name_of_label(given)));
        object["label_name"] = name_of_label(label);
        object["given_name"] = name_of_label(given);
      }
      lines += '\n';
      if (arguments.json) rows.push_back(std::move(object));
    }
    progress.show(fmt::format("{} of {} examples", first + here, count));
  }
  if (!arguments.out.empty()) write_file_atomically(arguments.out, lines);
  const double share = static_cast<double>(right) / static_cast<double>(count);
  if (arguments.json)
    print_json({{"examples", count}, {"accuracy", share}, {"labels", rows}});
  else if (arguments.out.empty())
    fmt::print("{}", lines);
  else
    fmt::print("{} of {} examples have their label ({:.2f} %): {}\n", right, count, 100 * share,
               arguments.out);
}

}  // namespace

void add_classify(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("classify", "Give examples the labels of a classifier");
  command.footer(
      "Writes a line of CSV for each example: its number, its own label, the most probable one and its\n"
      "probability, and the names of both labels where the model knows them.\n"
      "Example: linnet classify runs/classify-mnist --data mnist/ --out labels.csv");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--data", arguments->data,
                     "data with labels, as those of linnet train; default: those of the run");
  command
      .add_option("--data-kind", arguments->data_kind,
                  "kind of the data; default: from the name of --data and the files in it")
      .check(one_of(data_kinds()));
  command.add_option("--split", arguments->split, "part of the data")
      .check(one_of(split_names()))
      .capture_default_str();
  command.add_option("--examples", arguments->examples, "number of examples, evenly spaced; default: all")
      .check(whole(1, most_count));
  command.add_option("--batch", arguments->batch, "examples per pass")
      .check(whole(1, most_count))
      .capture_default_str();
  command.add_option("--out", arguments->out, "CSV file; default: standard output");
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
