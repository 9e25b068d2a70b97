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

/// Examples as a model takes them, without hidden tokens, for Model::hidden.
struct Inputs {
  std::vector<std::int32_t> tokens;     ///< [count · length]
  std::vector<std::int64_t> lengths;    ///< [count], before the padding
  std::vector<std::int64_t> labels;     ///< [count]
  std::vector<std::int64_t> sequences;  ///< [count] of FASTA: what examples are pieces of
};

Inputs read_examples(const Dataset& dataset, const ModelConfig& config,
                     const std::vector<std::int64_t>& indices) {
  const auto length = static_cast<std::size_t>(config.length);
  Inputs inputs;
  inputs.tokens.resize(indices.size() * length);
  std::vector<std::int32_t> targets(length);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::span tokens = std::span(inputs.tokens).subspan(i * length, length);
    const std::int64_t label = dataset.read(indices[i], tokens, targets);
    inputs.labels.push_back(label);
    if (const auto sequence = sequence_of(dataset, indices[i])) inputs.sequences.push_back(*sequence);
    inputs.lengths.push_back(std::ranges::find(tokens, -1) - tokens.begin());
    if (!config.shifted()) continue;
    std::shift_right(tokens.begin(), tokens.end(), 1);
    tokens.front() = config.first_input(config.classes > 0 ? label : -1);
  }
  return inputs;
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
  const ModelConfig& config = model->config();
  if (config.columns > 0 || config.field_sizes().size() != 1)
    fail<UsageError>("embed", "expected a model of one token per step, got one of {} fields and {} columns",
                     config.field_sizes().size(), config.columns);
  DataOptions source =
      data_of("embed", config, {arguments.model, arguments.data, arguments.data_kind, arguments.split});
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
  Progress progress;
  for (std::int64_t first = 0; first < count; first += arguments.batch) {
    const std::int64_t here = std::min(arguments.batch, count - first);
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < first + here; ++i) indices.push_back(i * size / count);
    const Inputs inputs = read_examples(dataset, config, indices);
    const Tensor hidden = model->hidden(context, inputs.tokens, here, config.length, inputs.lengths);
    const std::span<float> to =
        embeddings.span<float>().subspan(static_cast<std::size_t>(first * rows_of_example * config.width));
    if (arguments.per_token)
      write_rows(to, hidden.view<float>(), inputs.lengths);
    else
      write_means(to, hidden.view<float>(), inputs.lengths);
    lengths.insert(lengths.end(), inputs.lengths.begin(), inputs.lengths.end());
    labels.insert(labels.end(), inputs.labels.begin(), inputs.labels.end());
    sequences.insert(sequences.end(), inputs.sequences.begin(), inputs.sequences.end());
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
      "An embedding is the mean over the tokens of an example of the rows that the output head takes.\n"
      "Example: linnet embed runs/proteins --data proteins.fasta --out proteins.safetensors");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option("--data", arguments->data,
                     "digits, copy, a folder of MNIST, CIFAR-10, PNG or JPEG files, or files of text, FASTA "
                     "or tokens; default: those of the run");
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
  command.add_flag("--per-token", arguments->per_token, "write the row of every token instead of the mean");
  command.add_option("--threads", arguments->threads, "number of threads; default: all")
      .check(whole(1, most_threads));
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(*arguments); });
}

}  // namespace linnet
