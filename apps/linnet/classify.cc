#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "data/image_folder.h"
#include "data/lines.h"
#include "given_data.h"
#include "io/csv.h"
#include "io/file.h"
#include "metrics_file.h"
#include "outputs.h"
#include "report.h"
#include "run_record.h"
#include "training/examples.h"
#include "training/run_config.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, data_kind, text, out, split;
  std::int64_t examples = 0, batch = 8;
  bool json = false;
  int threads = 0;
};

/// The names of a model's labels; their numbers where they have none.
std::vector<std::string> label_names(const Model& model) {
  std::vector<std::string> names = model.assets().class_names;
  for (std::int64_t i = 0; names.empty() && i < model.config().classes; ++i)
    names.push_back(fmt::format("{}", i));
  return names;
}

/// What is to be labelled.
struct Given {
  std::unique_ptr<const Dataset> examples;
  std::vector<std::string> files;  ///< of the examples, where each is a file of its own
};

Given text_of(const Model& model, const std::string& text) {
  constexpr std::int64_t bytes = 256;
  const ModelConfig& config = model.config();
  if (config.vocabulary != bytes || config.image_height > 0 || config.columns > 0)
    fail<UsageError>("classify",
                     "expected a model whose tokens are the bytes of texts for --text, got another");
  if (std::ssize(text) > config.length)
    print_note(fmt::format("warning: of the {} bytes of the text the model reads the first {} (model.length)",
                           text.size(), config.length));
  DataOptions options{.kind = "lines", .length = config.length};
  options.class_names = label_names(model);
  return {unlabelled_texts({text}, options), {}};
}

/// Without --split all of --data, unless it is of a kind with parts of its own.
Given data_of(const Model& model, const Arguments& arguments) {
  if (!arguments.text.empty()) return text_of(model, arguments.text);
  GivenData given{arguments.model, arguments.data == "-" ? "/dev/stdin" : arguments.data, arguments.data_kind,
                  arguments.split.empty() ? "validation" : arguments.split};
  DataOptions options = data_of("classify", model.config(), given);
  if (arguments.split.empty() && !given.data.empty() &&
      (takes_files(options.kind) || options.kind == "images")) {
    given.split = "test";
    options = data_of("classify", model.config(), given);
  }
  options.class_names = label_names(model);
  Given result{open_dataset(options, split_named(given.split)), {}};
  if (options.kind == "images" && given.split == "test")
    for (const ImageFolder::File& file : list_images(options.test).files)
      result.files.push_back(file.path.string());
  return result;
}

void run(const Arguments& arguments) {
  check_outputs("classify", {{"--out", arguments.out}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  const std::shared_ptr<const Model> model = Model::load(arguments.model);
  note_better_evaluation(arguments.model);
  const ModelConfig& config = model->config();
  if (!config.classifies())
    fail<UsageError>("classify", "expected a classifier (model.objective = \"classify\"), got \"{}\"",
                     name_of(config.objective));
  const auto [data, files] = data_of(*model, arguments);
  check_fit(config, *data);
  check_assets(model->assets(), *data);
  if (arguments.text.empty() && arguments.data.empty()) warn_of_changed_data(arguments.model);
  const std::vector<std::string>& names = model->assets().class_names;
  const std::int64_t size = data->size();
  const std::int64_t count = arguments.examples == 0 ? size : std::min(arguments.examples, size);
  Context context(arguments.threads);
  Examples examples;
  Progress progress;
  std::string lines =
      fmt::format("example,label,given,probability{}{}\n", names.empty() ? "" : ",label_name,given_name",
                  files.empty() ? "" : ",file");
  const auto name_of_label = [&](std::int64_t label) {
    return label < 0 ? std::string() : names[static_cast<std::size_t>(label)];
  };
  Json rows = Json::array();
  std::int64_t labelled = 0, right = 0;
  for (std::int64_t first = 0; first < count; first += arguments.batch) {
    const std::int64_t here = std::min(arguments.batch, count - first);
    const auto index = [&](std::int64_t i) { return (first + i) * size / count; };
    const Batch batch = examples.read(context, *data, config, here, index, {Random(0, Draw::masking), index});
    check_batch("classify", config, batch);
    const Tensor probabilities = model->classify(context, steps_of(batch));
    for (std::int64_t i = 0; i < here; ++i) {
      const float* row = probabilities.view<float>().at(i);
      const auto given = std::max_element(row, row + config.classes) - row;
      const std::int32_t label = batch.labels[static_cast<std::size_t>(i)];
      labelled += label >= 0;
      right += given == label;
      lines += fmt::format("{},{},{},{:.6g}", index(i), label, given, row[given]);
      Json object = {{"example", index(i)}, {"label", label}, {"given", given}, {"probability", row[given]}};
      if (!names.empty()) {
        lines += fmt::format(",{},{}", csv_cell(name_of_label(label)), csv_cell(name_of_label(given)));
        object["label_name"] = name_of_label(label);
        object["given_name"] = name_of_label(given);
      }
      if (!files.empty()) {
        const std::string& file = files[static_cast<std::size_t>(index(i))];
        lines += "," + csv_cell(file);
        object["file"] = file;
      }
      lines += '\n';
      if (arguments.json) rows.push_back(std::move(object));
    }
    progress.show(fmt::format("{} of {} examples", first + here, count));
  }
  if (!arguments.out.empty()) write_file_atomically(arguments.out, lines);
  // Not a number where no label is known, which JSON has as null.
  const double share = labelled > 0 ? static_cast<double>(right) / static_cast<double>(labelled)
                                    : std::numeric_limits<double>::quiet_NaN();
  if (arguments.json)
    print_json({{"examples", count}, {"accuracy", share}, {"labels", rows}});
  else if (arguments.out.empty())
    fmt::print("{}", lines);
  else if (labelled > 0)
    print_summary(arguments.out, fmt::format("{} of {} examples have their label ({:.2f} %): {}\n", right,
                                             labelled, 100 * share, arguments.out));
  else
    print_summary(arguments.out, fmt::format("{} examples: {}\n", count, arguments.out));
}

}  // namespace

void add_classify(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("classify", "Give examples the labels of a classifier");
  command.footer(
      "Writes a line of CSV for each example: its number, its own label, the most probable one and its\n"
      "probability, the names of both labels where the model knows them, and the file of a picture. A label\n"
      "that is not known is -1: that of a line without LABEL<tab>, and of a picture in no folder of a "
      "label.\n"
      "Examples: linnet classify runs/classify-mnist --data mnist/ --out labels.csv\n"
      "          linnet classify runs/reviews --text \"A fine film.\"");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  const Option data = command.add_option(
      "--data", arguments->data,
      "data as those of linnet train, with labels or without, - for lines of standard input; default: those "
      "of the run");
  Option kind = add_data_kind(command, arguments->data_kind);
  Option split = command
                     .add_option("--split", arguments->split,
                                 "part of the data; default: all files of --data, otherwise validation")
                     .check(one_of(split_names()));
  Option examples =
      command.add_option("--examples", arguments->examples, "number of examples, evenly spaced; default: all")
          .check(whole(1, most_count));
  Option text = command.add_option("--text", arguments->text, "a text to label, in place of data");
  for (const Option& option : {data, kind, split, examples}) text.excludes(option);
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
