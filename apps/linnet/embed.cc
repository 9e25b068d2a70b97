#include <fmt/core.h>

#include <algorithm>

#include "base/fail.h"
#include "base/memory.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "data/fasta.h"
#include "given_data.h"
#include "io/safetensors.h"
#include "metrics_file.h"
#include "model/config.h"
#include "outputs.h"
#include "report.h"
#include "run_record.h"
#include "training/examples.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, data_kind, out, split = "validation";
  std::int64_t examples = 0, batch = 8;
  bool per_token = false, json = false;
  int threads = 0;
};

/// How examples are laid out for Model::hidden: as the inputs of the model, without hidden tokens.
ModelConfig layout_of(ModelConfig config) {
  if (config.masked()) config.objective = Objective::classify;
  return config;
}

/// The tokens of a batch with the class 0 for all examples: rows that have read the label of their example
/// would tell it to whoever compares them.
std::vector<std::int32_t> without_labels(const ModelConfig& config, std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> result(tokens.begin(), tokens.end());
  if (config.classes == 0 || !config.shifted()) return result;
  const std::int32_t first = config.first_input(0), last = config.first_input(config.classes - 1);
  const auto fields = static_cast<std::size_t>(config.input_fields());
  for (std::size_t i = 0; i < result.size(); i += fields)
    if (result[i] >= first && result[i] <= last) result[i] = first;
  return result;
}

/// The label of an example, also where the model has no classes.
std::int64_t label_of(const Dataset& dataset, std::int64_t index) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.length()) * dataset.fields().size()),
      targets(tokens.size());
  return dataset.read(index, tokens, targets);
}

/// means [count, width] over the rows of each example before its padding.
void write_means(std::span<float> means, View<const float> rows, const std::vector<std::int64_t>& lengths) {
  const std::int64_t width = rows.extent(2);
  std::vector<double> sums(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    const std::int64_t length = lengths[static_cast<std::size_t>(i)];
    std::ranges::fill(sums, 0.0);
    for (std::int64_t t = 0; t < length; ++t)
      for (std::int64_t k = 0; k < width; ++k) sums[static_cast<std::size_t>(k)] += rows(i, t, k);
    for (std::int64_t k = 0; k < width; ++k)
      means[static_cast<std::size_t>(i * width + k)] =
          static_cast<float>(sums[static_cast<std::size_t>(k)] / static_cast<double>(length));
  }
}

/// rows [count, length, width] as they are, with 0 in place of padding.
void write_rows(std::span<float> to, View<const float> rows, const std::vector<std::int64_t>& lengths) {
  for (std::int64_t i = 0; i < rows.extent(0); ++i)
    std::copy_n(rows.at(i), lengths[static_cast<std::size_t>(i)] * rows.extent(2),
                to.begin() + i * rows.extent(1) * rows.extent(2));
}

void run(const Arguments& arguments) {
  check_outputs("embed", {{"--out", arguments.out}},
                {{"the model's", arguments.model}, {"--data", arguments.data}});
  const std::shared_ptr<const Model> model = Model::load(arguments.model);
  note_better_evaluation(arguments.model);
  const ModelConfig& config = model->config();
  if (config.has_encoder()) check_one_token("embed", config);
  GivenData given{arguments.model, arguments.data, arguments.data_kind, arguments.split};
  // Embeddings are of the inputs: what the outputs are does not matter.
  if (config.objective == Objective::same_step) given.target = arguments.data;
  DataOptions source = data_of("embed", config, given);
  source.labels = true;  // written for models without classes too
  const std::unique_ptr<const Dataset> data = open_dataset(source, split_named(arguments.split));
  const Dataset& dataset = *data;
  if (arguments.data.empty()) warn_of_changed_data(arguments.model);
  check_fit(config, dataset);
  check_assets(model->assets(), dataset);
  const std::int64_t size = dataset.size();
  const std::int64_t count = arguments.examples == 0 ? size : std::min(arguments.examples, size);
  const std::int64_t rows_of_example = arguments.per_token ? config.length : 1;
  require_memory("the embeddings", 4.0 * static_cast<double>(count) * static_cast<double>(rows_of_example) *
                                       static_cast<double>(config.width));
  Tensor embeddings = Tensor::of<float>(arguments.per_token ? Shape{count, config.length, config.width}
                                                            : Shape{count, config.width});
  std::vector<std::int64_t> lengths, labels, sequences;
  Context context(arguments.threads);
  Examples examples;
  const ModelConfig layout = layout_of(config);
  Progress progress;
  for (std::int64_t first = 0; first < count; first += arguments.batch) {
    const std::int64_t here = std::min(arguments.batch, count - first);
    const auto index = [&](std::int64_t i) { return (first + i) * size / count; };
    const Batch batch =
        examples.read(context, dataset, layout, here, index, {Random(0, Draw::masking), index});
    Steps steps = steps_of(batch);
    const std::vector<std::int32_t> tokens = without_labels(config, steps.tokens);
    steps.tokens = tokens;
    const Tensor hidden = model->hidden(context, steps);
    std::vector<std::int64_t> known(batch.key_lengths.begin(), batch.key_lengths.end());
    known.resize(static_cast<std::size_t>(here), config.length);
    const std::span<float> to =
        embeddings.span<float>().subspan(static_cast<std::size_t>(first * rows_of_example * config.width));
    if (arguments.per_token)
      write_rows(to, hidden.view<float>(), known);
    else
      write_means(to, hidden.view<float>(), known);
    lengths.insert(lengths.end(), known.begin(), known.end());
    for (std::int64_t i = 0; i < here; ++i) {
      if (dataset.classes() > 0) labels.push_back(label_of(dataset, index(i)));
      if (const auto sequence = sequence_of(dataset, index(i))) sequences.push_back(*sequence);
    }
    progress.show(fmt::format("{} of {} examples", first + here, count));
  }
  std::vector<NamedTensor> tensors = {{"embeddings", DType::f32, embeddings.shape(), embeddings.raw()},
                                      {"lengths", DType::i64, {count}, lengths.data()}};
  if (dataset.classes() > 0) tensors.push_back({"labels", DType::i64, {count}, labels.data()});
  if (!sequences.empty()) tensors.push_back({"sequences", DType::i64, {count}, sequences.data()});
  write_safetensors(arguments.out, tensors, {});
  if (arguments.json)
    print_json({{"out", arguments.out},
                {"examples", count},
                {"width", config.width},
                {"shape", embeddings.shape()}});
  else
    print_summary(arguments.out, fmt::format("embeddings {} of {} examples: {}\n",
                                             to_string(embeddings.shape()), count, arguments.out));
}

}  // namespace

void add_embed(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      program.add_subcommand("embed", "Write the hidden rows of a model as embeddings of examples");
  command.footer(
      "An embedding is the mean over the steps of an example of the rows that the output head takes.\n"
      "Example: linnet embed runs/proteins --data proteins.fasta --out proteins.safetensors");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--data", arguments->data,
                     "digits, copy, a folder of MNIST, CIFAR-10, PNG or JPEG files, or files of text, FASTA, "
                     "tokens, numbers or sound; default: those of the run");
  add_data_kind(command, arguments->data_kind);
  command.add_option("--out", arguments->out, "safetensors file for the embeddings").required();
  command.add_option("--split", arguments->split, "part of the data; test takes all of the files")
      .check(one_of(split_names()))
      .capture_default_str();
  command.add_option("--examples", arguments->examples, "number of examples, evenly spaced; default: all")
      .check(whole(1, most_count));
  command.add_option("--batch", arguments->batch, "examples per pass")
      .check(whole(1, most_count))
      .capture_default_str();
  command.add_flag("--per-token", arguments->per_token, "write the row of every step instead of the mean");
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
