#include "training/examples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/family.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/parallel.h"
#include "io/json.h"
#include "linnet/dataset.h"
#include "training/masking.h"

namespace linnet {

namespace {

/// Throws UsageError where the model does not take several sequences in an example.
void check_packed(const char* operation, const ModelConfig& config) {
  if (config.classifies())
    fail<UsageError>(operation,
                     "expected one sequence per example (data.packing = false) for a model of labels, which "
                     "are those of whole examples, got several");
  if (config.has_encoder())
    fail<UsageError>(operation,
                     "expected one sequence per example (data.packing = false) for an encoder–decoder model, "
                     "whose examples have a source each, got several");
  check_packed(config.attention, config.layers);
}

}  // namespace

void check_fit(const ModelConfig& config, const Dataset& dataset) {
  if (dataset.length() != config.length)
    fail<UsageError>("training",
                     "expected model.length = {} as the data has, got {}; where model.length is 0, the data "
                     "decides, for text, bytes, copy and fasta by data.length",
                     dataset.length(), config.length);
  const std::vector<std::int64_t> fields = dataset.fields(), sizes = config.field_sizes();
  if (fields.size() != sizes.size())
    fail<UsageError>("training", "expected a model of {} fields of tokens per step as the data has, got {}",
                     fields.size(), sizes.size());
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (fields[f] <= sizes[f]) continue;
    if (fields.size() == 1)
      fail<UsageError>("training", "expected model.vocabulary of at least {} as the data has, got {}",
                       fields[f], sizes[f]);
    fail<UsageError>("training",
                     "expected at least {} values of field {} in model.fields as the data has, got {}",
                     fields[f], f, sizes[f]);
  }
  if (dataset.source_length() != config.source_length) {
    if (config.source_length == 0)
      fail<UsageError>(
          "training",
          "expected model.encoder_layers of at least 1 for data with sources (data.source_length), "
          "got a model without an encoder");
    fail<UsageError>(
        "training", "expected model.source_length = {} as the data has, got {}{}", dataset.source_length(),
        config.source_length,
        dataset.source_length() == 0 ? ": pairs have sources of their own with data.source_length" : "");
  }
  if (config.has_encoder() && dataset.source_vocabulary() > config.source_tokens())
    fail<UsageError>("training", "expected model.source_vocabulary of at least {} as the data has, got {}",
                     dataset.source_vocabulary(), config.source_tokens());
  if (dataset.columns() != config.columns)
    fail<UsageError>("training", "expected model.columns = {} as the data has, got {}", dataset.columns(),
                     config.columns);
  if (dataset.patch() != config.patch)
    fail<UsageError>("training", "expected model.patch = {} as the data has, got {}", dataset.patch(),
                     config.patch);
  if (!config.classifies() && dataset.target_columns() != config.target_count())
    fail<UsageError>("training", "expected model.targets = {} as the data has, got {}",
                     dataset.target_columns(), config.target_count());
  if (dataset.paired() && config.shifted())
    fail<UsageError>("training",
                     "expected model.objective = \"same-step\" for data of inputs and targets, got \"{}\"",
                     name_of(config.objective));
  if (config.objective == Objective::same_step && !dataset.paired())
    fail<UsageError>(
        "training",
        "expected data of inputs and targets (data.target) with model.objective = \"same-step\", got "
        "data whose targets are the inputs");
  // Examples may lack the last classes, where the data do not say what those are.
  const bool fewer =
      0 < dataset.classes() && dataset.classes() < config.classes && dataset.class_names().empty();
  if (config.classes > 0 && dataset.classes() != config.classes && !fewer)
    fail<UsageError>("training", "expected model.classes = {} as the data has, got {}", dataset.classes(),
                     config.classes);
  if (!dataset.tokenizer().empty() && dataset.vocabulary() != config.vocabulary)
    fail<UsageError>(
        "training",
        "expected a tokenizer of model.vocabulary = {} pieces, got one of {}, which does not match "
        "the model",
        config.vocabulary, dataset.vocabulary());
  if (dataset.packed()) check_packed("training", config);
  if (dataset.size() < 1) fail<UsageError>("training", "expected at least 1 example, got {}", dataset.size());
}

void check_training_data(const ModelConfig& config, const TrainingOptions& options, const Dataset& dataset) {
  check_fit(config, dataset);
  if (options.transpose > 0 && dataset.vocabulary() == 0)
    fail<UsageError>("training", "expected training.transpose = 0 for steps without tokens, got {}",
                     options.transpose);
  if (options.transpose > 0 && config.has_encoder())
    fail<UsageError>("training",
                     "expected training.transpose = 0 for an encoder–decoder model, whose sources it does "
                     "not shift, got {}",
                     options.transpose);
  if (dataset.packed() && (options.segment > 0 || options.sequence_ranks > 1))
    fail<UsageError>("training",
                     "expected one sequence per example (data.packing = false) with training.{}, got several",
                     options.segment > 0 ? "segment" : "sequence_ranks");
}

std::vector<std::string> label_names(const Dataset& dataset) {
  std::vector<std::string> names = dataset.class_names();
  std::ranges::transform(names, names.begin(), as_json_text);
  std::vector<std::string> sorted = names;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    fail<UsageError>("data", "expected labels that differ as UTF-8, got several that are \"{}\"", *twice);
  return names;
}

void check_assets(const ModelAssets& assets, const Dataset& dataset) {
  const std::string tokenizer = dataset.tokenizer();
  if (!assets.tokenizer.empty() && !tokenizer.empty() && tokenizer != assets.tokenizer)
    fail<UsageError>("data", "expected text through the tokenizer of the model, got it through another one");
  const std::vector<std::string> names = label_names(dataset);
  if (assets.class_names.empty() || names.empty() || names == assets.class_names) return;
  const auto other = std::ranges::find_if(
      names, [&](const std::string& name) { return std::ranges::count(assets.class_names, name) == 0; });
  if (other != names.end())
    fail<UsageError>("data", "expected labels of the model ({}), got \"{}\"",
                     shortened(fmt::format("{}", fmt::join(assets.class_names, ", "))), shortened(*other));
  fail<UsageError>("data", "expected the {} labels of the model in their order, got {} of them",
                   assets.class_names.size(), names.size());
}

namespace {

/// The inputs of a next-token model in place of a sequence's own steps: its first input, then all but the
/// last.
void shift(const ModelConfig& config, std::span<const std::int64_t> sizes, std::span<std::int32_t> inputs,
           std::span<float> values, std::int64_t label) {
  const auto columns = static_cast<std::size_t>(config.columns);
  if (sizes.empty()) std::ranges::fill(inputs, -1);
  std::shift_right(inputs.begin(), inputs.end(), config.input_fields());
  std::shift_right(values.begin(), values.end(), config.columns);
  std::ranges::fill(values.first(columns), std::numeric_limits<float>::quiet_NaN());
  inputs[0] = config.first_input(config.classes > 0 ? label : -1);
  for (std::size_t f = 1; f < sizes.size(); ++f) inputs[f] = static_cast<std::int32_t>(sizes[f]);
}

/// Whether later fields of a step are predicted from the ones before.
bool has_conditions(const ModelConfig& config) { return config.shifted() && config.field_sizes().size() > 1; }

/// Throws UsageError where tokens or targets of example `index` of a dataset, whose padding begins behind
/// `known` steps, are none of the model's.
void check_tokens(std::span<const std::int64_t> sizes, std::span<const std::int32_t> tokens,
                  std::span<const std::int32_t> targets, std::int64_t known, std::int64_t index) {
  const auto of_field = [&](std::size_t i) {
    return sizes.size() > 1 ? fmt::format(" of field {}", i % sizes.size()) : "";
  };
  const std::size_t padding = static_cast<std::size_t>(known) * sizes.size();
  for (std::size_t i = 0; i < padding; ++i) {
    const std::int64_t most = sizes[i % sizes.size()] - 1;
    const auto check = [&](const char* what, std::int32_t value, std::int64_t least) {
      if (value < least || value > most)
        fail<UsageError>("data", "expected {}{} in {} … {}, got {} in step {} of example {}", what,
                         of_field(i), least, most, value, i / sizes.size(), index);
    };
    check("tokens", tokens[i], 0);
    check("targets", targets[i], -1);
  }
  for (std::size_t i = padding; i < tokens.size(); ++i)
    if (tokens[i] != -1 || targets[i] != -1)
      fail<UsageError>("data",
                       "expected tokens and targets of -1 behind step {} of example {}, where the padding "
                       "begins with a token of -1, got {}{} in step {}",
                       known, index, tokens[i] != -1 ? tokens[i] : targets[i], of_field(i), i / sizes.size());
}

/// The same for a source.
void check_source(const ModelConfig& config, std::span<const std::int32_t> source, std::int64_t known,
                  std::int64_t index) {
  if (known == 0)
    fail<UsageError>("data", "expected a source of at least 1 token, got none in example {}", index);
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool padding = static_cast<std::int64_t>(i) >= known;
    const std::int64_t least = padding ? -1 : 0, most = padding ? -1 : config.source_tokens() - 1;
    if (source[i] < least || source[i] > most)
      fail<UsageError>("data", "expected source tokens in {} … {}, got {} at place {} of example {}", least,
                       most, source[i], i, index);
  }
}

/// The same for the real numbers, `columns` of them in a step.
void check_numbers(std::span<const float> values, std::int64_t columns, std::int64_t index) {
  const auto infinite = std::ranges::find_if(values, [](float value) { return std::isinf(value); });
  if (infinite != values.end())
    fail<UsageError>("data", "expected finite numbers, got {} in step {} of example {}", *infinite,
                     (infinite - values.begin()) / columns, index);
}

/// The same for a label, −1 where it is not known.
void check_label(const ModelConfig& config, std::int64_t label, std::int64_t index) {
  const std::int64_t least = config.shifted() ? 0 : -1;
  if (config.classes > 0 && (label < least || label >= config.classes))
    fail<UsageError>("data", "expected a label in {} … {}, got {} in example {}", least, config.classes - 1,
                     label, index);
}

}  // namespace

void Examples::read_one(const Dataset& dataset, const ModelConfig& config, std::int64_t i, std::int64_t index,
                        const Masks& masks) {
  const std::int64_t length = config.length, fields = std::ssize(config.field_sizes());
  const std::int64_t columns = config.columns, input_fields = config.input_fields();
  const auto part = [&](auto& all, std::int64_t each) {
    return std::span(all).subspan(static_cast<std::size_t>(i * length * each),
                                  static_cast<std::size_t>(length * each));
  };
  const std::span<std::int32_t> inputs = part(inputs_, input_fields), targets = part(targets_, fields);
  const std::span<std::int32_t> tokens = inputs.first(targets.size());
  const std::span<float> values = part(values_, columns);
  const std::vector<PackedSequence> sequences = dataset.read_sequences(index, tokens, targets);
  std::int64_t before = 0;
  for (const PackedSequence& sequence : sequences) {
    if (sequence.end <= before || sequence.end > length)
      fail<UsageError>("data", "expected sequences that end in {} … {} of example {}, got {}", before + 1,
                       length, index, sequence.end);
    before = sequence.end;
    check_label(config, sequence.label, index);
  }
  if (columns > 0 || dataset.target_columns() > 0) {
    const std::span<float> value_targets = part(value_targets_, dataset.target_columns());
    dataset.read_values(index, values, value_targets);
    check_numbers(values, columns, index);
    check_numbers(value_targets, dataset.target_columns(), index);
  }

  if (config.has_encoder()) {
    const auto each = static_cast<std::size_t>(config.source_length);
    const std::span<std::int32_t> source =
        std::span(source_).subspan(static_cast<std::size_t>(i) * each, each);
    dataset.read_source(index, source);
    const auto padding = std::ranges::find(source, -1);
    source_lengths_[static_cast<std::size_t>(i)] = padding - source.begin();
    check_source(config, source, padding - source.begin(), index);
    std::fill(padding, source.end(), 0);
  }

  std::int64_t known = length;  // steps before the padding
  const auto is_padding = [&](std::int64_t step) {
    if (fields > 0) return tokens[static_cast<std::size_t>(step * fields)] < 0;
    const auto row =
        values.subspan(static_cast<std::size_t>(step * columns), static_cast<std::size_t>(columns));
    return std::ranges::all_of(row, [](float value) { return std::isnan(value); });
  };
  if (fields > 0)
    for (known = 0; known < length && !is_padding(known);) ++known;
  else if (is_padding(length - 1))  // padding, or numbers that are not known
    known = std::clamp<std::int64_t>(dataset.steps(index), 1, length);
  key_lengths_[static_cast<std::size_t>(i)] = known;
  if (fields > 0) {
    check_tokens(config.field_sizes(), tokens, targets, known, index);
    std::fill(tokens.begin() + known * fields, tokens.end(), 0);  // some token: nothing sees it
  }

  if (config.classifies())
    labels_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(sequences[0].label);
  const std::vector<std::int64_t> sizes = config.field_sizes();
  const std::span<std::int32_t> conditions = part(conditions_, has_conditions(config) ? fields : 0);
  std::ranges::fill(conditions, -1);
  std::int64_t begin = 0;
  for (const PackedSequence& sequence : sequences) {
    const std::int64_t end = sequence.end;
    const auto own = [&](auto all, std::int64_t each) {
      return all.subspan(static_cast<std::size_t>(begin * each),
                         static_cast<std::size_t>((end - begin) * each));
    };
    const auto first = static_cast<std::uint64_t>((masks.draw(i) * length + begin) * fields);
    if (masks.transpose > 0)
      transpose_tokens(own(tokens, fields), own(targets, fields), sizes, masks.transpose, masks.shifts,
                       first);
    if (config.masked()) hide_tokens(own(tokens, fields), own(targets, fields), sizes, masks.random, first);
    if (has_conditions(config)) std::ranges::copy(own(tokens, fields), own(conditions, fields).begin());
    if (config.shifted())
      shift(config, sizes, own(inputs, input_fields), own(values, columns), sequence.label);
    begin = end;
  }
  if (!dataset.packed()) return;
  const std::span<std::int32_t> positions = part(positions_, 1);
  auto next = sequences.begin();
  std::int32_t position = 0;
  for (std::int64_t step = 0; step < length; ++step) {
    if (next != sequences.end() && step == next->end && ++next != sequences.end()) position = 0;
    positions[static_cast<std::size_t>(step)] = position++;
  }
}

Batch Examples::read(Context& context, const Dataset& dataset, const ModelConfig& config, std::int64_t count,
                     const Index& index, const Masks& masks) {
  const std::int64_t length = config.length, fields = std::ssize(config.field_sizes());
  const std::int64_t values = config.columns + dataset.target_columns();
  const double steps = static_cast<double>(count) * static_cast<double>(length);
  // Later batches of the same size take the same memory.
  if (static_cast<double>(inputs_.capacity() + values_.capacity()) <
      steps * static_cast<double>(config.input_fields() + config.columns))
    require_memory(fmt::format("a batch of {} examples", count),
                   sizeof(float) * steps * static_cast<double>(config.input_fields() + fields + values));
  const auto resize = [&](auto& all, std::int64_t each) {
    all.resize(static_cast<std::size_t>(count * length * each));
  };
  resize(inputs_, config.input_fields());
  resize(targets_, fields);
  resize(conditions_, has_conditions(config) ? fields : 0);
  resize(values_, config.columns);
  resize(value_targets_, dataset.target_columns());
  key_lengths_.resize(static_cast<std::size_t>(count));
  labels_.resize(static_cast<std::size_t>(config.classifies() ? count : 0));
  resize(positions_, dataset.packed() ? 1 : 0);
  source_.resize(static_cast<std::size_t>(count * config.source_length));
  source_lengths_.resize(static_cast<std::size_t>(config.has_encoder() ? count : 0));
  parallel_for(context, count, [&](std::int64_t i) { read_one(dataset, config, i, index(i), masks); });
  const auto clear_full = [](std::vector<std::int64_t>& lengths, std::int64_t full) {
    if (std::ranges::all_of(lengths, [&](std::int64_t tokens) { return tokens == full; })) lengths.clear();
  };
  clear_full(key_lengths_, length);
  clear_full(source_lengths_, config.source_length);
  Batch batch{count, length, inputs_, targets_, key_lengths_};
  batch.conditions = conditions_;
  batch.values = values_;
  if (config.classifies() || config.objective == Objective::same_step) batch.targets = {};
  if (config.target_count() > 0) batch.value_targets = value_targets_;
  batch.labels = labels_;
  batch.positions = positions_;
  batch.source = source_;
  batch.source_lengths = source_lengths_;
  return batch;
}

Batch part_of(const Batch& batch, std::int64_t first, std::int64_t last) {
  const auto part = [&](const auto& all) {
    const auto each = static_cast<std::int64_t>(all.size()) / batch.examples;
    return all.subspan(static_cast<std::size_t>(first * each),
                       static_cast<std::size_t>((last - first) * each));
  };
  return {.examples = last - first,
          .length = batch.length,
          .inputs = part(batch.inputs),
          .targets = part(batch.targets),
          .key_lengths = part(batch.key_lengths),
          .values = part(batch.values),
          .value_targets = part(batch.value_targets),
          .labels = part(batch.labels),
          .positions = part(batch.positions),
          .source = part(batch.source),
          .source_lengths = part(batch.source_lengths),
          .conditions = part(batch.conditions)};
}

Pass pass_of(const Batch& batch) {
  return {.batch = batch.examples,
          .length = batch.length,
          .ids = batch.inputs,
          .values = batch.values,
          .key_lengths = batch.key_lengths,
          .targets = batch.targets,
          .conditions = batch.conditions,
          .value_targets = batch.value_targets,
          .labels = batch.labels,
          .positions = batch.positions,
          .source = batch.source,
          .source_lengths = batch.source_lengths};
}

Steps steps_of(const Batch& batch) {
  return {.batch = batch.examples,
          .length = batch.length,
          .tokens = batch.inputs,
          .values = batch.values,
          .key_lengths = batch.key_lengths};
}

std::int64_t steps_in(const Batch& batch) {
  if (batch.key_lengths.empty()) return batch.examples * batch.length;
  return std::accumulate(batch.key_lengths.begin(), batch.key_lengths.end(), std::int64_t{0});
}

std::int64_t counted_targets(const Batch& batch) {
  const auto counts = [](std::int32_t target) { return target >= 0; };
  return std::ranges::count_if(batch.targets, counts) + std::ranges::count_if(batch.labels, counts) +
         std::ranges::count_if(batch.value_targets, [](float value) { return !std::isnan(value); });
}

void check_batch(const char* operation, const ModelConfig& config, const Batch& batch) {
  if (batch.examples < 1)
    fail<UsageError>(operation, "expected a batch of at least 1 example, got {}", batch.examples);
  if (batch.length < 1 || batch.length > config.length)
    fail<UsageError>(operation, "expected examples of 1 … {} positions, got {}", config.length, batch.length);
  const auto check_size = [&](const char* what, std::size_t size, std::int64_t each) {
    const auto found = static_cast<std::int64_t>(size);
    if (each == 0 ? found == 0 : found / each == batch.examples && found % each == 0) return;
    if (each == 0) fail<UsageError>(operation, "expected no {} for this model, got {}", what, size);
    fail<UsageError>(operation, "expected {} for {} examples of {}, got {}", what, batch.examples, each,
                     size);
  };
  const std::vector<std::int64_t> sizes = config.field_sizes();
  const bool tokens_count = config.shifted() || config.masked();
  const std::int64_t fields = std::ssize(sizes), length = batch.length;
  check_size("inputs", batch.inputs.size(), length * config.input_fields());
  check_size("targets", batch.targets.size(), tokens_count ? length * fields : 0);
  if (!batch.conditions.empty())
    check_size("conditions", batch.conditions.size(), has_conditions(config) ? length * fields : 0);
  check_size("values", batch.values.size(), length * config.columns);
  check_size("value targets", batch.value_targets.size(), length * config.target_count());
  check_size("labels", batch.labels.size(), config.classifies() ? 1 : 0);
  if (!batch.key_lengths.empty()) check_size("key lengths", batch.key_lengths.size(), 1);
  if (!batch.positions.empty()) {
    check_size("positions", batch.positions.size(), length);
    check_packed(operation, config);
    for (std::size_t i = 0; i < batch.positions.size(); ++i) {
      const std::int32_t next = i % static_cast<std::size_t>(length) == 0 ? 0 : batch.positions[i - 1] + 1;
      if (batch.positions[i] != 0 && batch.positions[i] != next)
        fail<UsageError>(operation, "expected position {} in step {}, got {}",
                         next == 0 ? "0" : fmt::format("0 or {}", next), i, batch.positions[i]);
    }
  }
  const std::int64_t sources = std::ssize(batch.source) / batch.examples;
  if (!config.has_encoder()) {
    check_size("source tokens", batch.source.size(), 0);
  } else if (sources < 1 || sources > config.source_length ||
             std::ssize(batch.source) % batch.examples != 0) {
    fail<UsageError>(operation, "expected 1 … {} source tokens for each of {} examples, got {}",
                     config.source_length, batch.examples, batch.source.size());
  }
  if (!batch.source_lengths.empty())
    check_size("source lengths", batch.source_lengths.size(), config.has_encoder() ? 1 : 0);

  // Where value i of so many stands: in which step, of `steps` ones for each example, and in which example.
  const auto place = [&](std::size_t i, std::size_t size, std::int64_t steps) {
    const auto each = static_cast<std::int64_t>(size) / batch.examples, at = static_cast<std::int64_t>(i);
    const std::string example = fmt::format("example {} of the batch", at / each);
    return steps == 0 ? example : fmt::format("step {} of {}", at % each / (each / steps), example);
  };
  const auto check_range = [&](const char* what, const auto& values, std::int64_t steps, std::int64_t least,
                               std::int64_t most) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] < least || values[i] > most)
        fail<UsageError>(operation, "expected {} in {} … {}, got {} in {}", what, least, most, values[i],
                         place(i, values.size(), steps));
  };
  const auto check_fields = [&](const char* what, std::span<const std::int32_t> values, std::int64_t each,
                                std::int64_t least, const auto& most_of) {
    if (each == 1) return check_range(what, values, length, least, most_of(0));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto field = static_cast<std::int64_t>(i) % each;
      if (values[i] < least || values[i] > most_of(field))
        fail<UsageError>(operation, "expected {} of field {} in {} … {}, got {} in {}", what, field, least,
                         most_of(field), values[i], place(i, values.size(), length));
    }
  };
  check_fields("inputs", batch.inputs, config.input_fields(), fields == 0 ? -1 : 0, [&](std::int64_t field) {
    if (field == 0) return config.input_tokens() - 1;
    return sizes[static_cast<std::size_t>(field)] - (config.shifted() || config.masked() ? 0 : 1);
  });
  const auto last_token = [&](std::int64_t field) { return sizes[static_cast<std::size_t>(field)] - 1; };
  check_fields("targets", batch.targets, fields, -1, last_token);
  check_fields("conditions", batch.conditions, fields, -1, last_token);
  check_range("labels", batch.labels, 0, -1, config.classes - 1);
  check_range("source tokens", batch.source, sources, 0, config.source_tokens() - 1);
  check_range("source lengths", batch.source_lengths, 0, 1, sources);
  for (const std::span<const float> values : {batch.values, batch.value_targets})
    for (std::size_t i = 0; i < values.size(); ++i)
      if (std::isinf(values[i]))
        fail<UsageError>(operation, "expected finite values, got {} in {}", values[i],
                         place(i, values.size(), length));
  // A mean over no step is none.
  check_range("key lengths", batch.key_lengths, 0, config.classifies() ? 1 : 0, length);
  for (std::size_t example = 0; example < batch.key_lengths.size(); ++example) {
    const auto check_padding = [&](const char* what, const auto& all, const auto& is_none) {
      const std::size_t each = all.size() / static_cast<std::size_t>(batch.examples);
      const std::size_t step = each / static_cast<std::size_t>(length);
      for (std::size_t i = example * each + step * static_cast<std::size_t>(batch.key_lengths[example]);
           i < (example + 1) * each; ++i)
        if (!is_none(all[i]))
          fail<UsageError>(operation, "expected {} in the padding, got {} in {}", what, all[i],
                           place(i, all.size(), length));
    };
    check_padding("targets of -1", batch.targets, [](std::int32_t target) { return target == -1; });
    check_padding("value targets that are NaN", batch.value_targets,
                  [](float value) { return std::isnan(value); });
  }
}

}  // namespace linnet
