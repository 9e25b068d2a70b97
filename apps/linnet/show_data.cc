#include "show_data.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/names.h"
#include "checks.h"
#include "config.h"
#include "data/files.h"
#include "data/pairs.h"
#include "data/series.h"
#include "data_doubts.h"
#include "io/png.h"
#include "linnet/dataset.h"
#include "outputs.h"
#include "pictures.h"
#include "report.h"
#include "run_record.h"
#include "token_text.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, split, out;
  std::vector<std::string> settings;
  std::int64_t examples = 0;  ///< 0: `most_examples` or `most_pictures`
  bool json = false;
};

constexpr std::int64_t most_examples = 3, most_pictures = 64;

RunConfig config_of(const Arguments& arguments) {
  RunConfig config;
  if (is_configuration("data", arguments.model)) {
    load(config, arguments.model, arguments.settings);
    set_data(config, arguments.data, arguments.settings);
    check_source(config.data);
    return config;
  }
  const auto run = run_of(arguments.model);
  if (!run)
    fail<UsageError>("data", "expected a configuration or the folder of a run, got {}", arguments.model);
  config = RunRecord::read(*run).config;
  std::vector<std::string> settings = {"data.kind=" + config.data.kind};
  settings.insert(settings.end(), arguments.settings.begin(), arguments.settings.end());
  for (const std::string& setting : arguments.settings) config.set(setting);
  set_data(config, arguments.data, settings);
  return config;
}

struct Part {
  std::string name;  ///< as --split has it
  const Dataset* data;
  std::string files;  ///< the value of DataOptions that names them
};

std::vector<Part> parts_of(const Datasets& data, const DataOptions& options) {
  const auto files = [&](const std::string& own) { return own.empty() ? options.path : own; };
  std::vector<Part> parts = {{"training", data.training.get(), options.path},
                             {"validation", data.validation.get(), files(options.validation)},
                             {"test", data.test.get(), files(options.test)}};
  std::erase_if(parts, [](const Part& part) { return part.data == nullptr; });
  return parts;
}

/// The sizes of the parts; of a series with the rows of each file that they consist of.
Json sizes_of(const std::vector<Part>& parts, const DataOptions& options) {
  Json all = Json::array();
  for (const auto& [name, data, value] : parts) {
    all.push_back({{"part", name}, {"examples", data->size()}, {"steps", data->length()}});
    const std::vector<SeriesStretch> stretches = series_stretches(*data);
    if (stretches.empty()) continue;
    const auto files = files_named("--data", value, options.kind);
    Json& rows = all.back()["rows"] = Json::array();
    for (const SeriesStretch& stretch : stretches) {
      rows.push_back(
          {{"file", files[stretch.file].string()}, {"first", stretch.begin}, {"end", stretch.end}});
      if (stretch.first_time.empty()) continue;
      rows.back()["first_time"] = stretch.first_time;
      rows.back()["last_time"] = stretch.last_time;
    }
  }
  return all;
}

std::string name_of_label(const Dataset& data, std::int64_t label) {
  const std::vector<std::string> names = data.class_names();
  const bool known = label >= 0 && label < std::ssize(names);
  return known ? names[static_cast<std::size_t>(label)] : fmt::format("{}", label);
}

/// Tokens and targets of an example.
struct TokenRows {
  explicit TokenRows(const Dataset& data)
      : tokens(static_cast<std::size_t>(data.length()) * data.fields().size()), targets(tokens) {}
  std::vector<std::int32_t> tokens, targets;
};

/// How many sequences of each part have each label.
Json labels_of(const std::vector<Part>& parts) {
  const Dataset& first = *parts.front().data;
  Json rows = Json::array();
  for (std::int64_t label = 0; label < first.classes(); ++label)
    rows.push_back({{"label", name_of_label(first, label)}});
  for (const auto& [name, data, files] : parts) {
    if (rows.empty()) break;
    const std::vector<std::int64_t> counts = count_labels(*data);
    for (std::size_t label = 0; label < counts.size(); ++label) rows[label][name] = counts[label];
  }
  return rows;
}

/// Mean and standard deviation of every column in the training part.
Json columns_of(const Dataset& data) {
  const std::vector<std::string> names = data.column_names();
  const ColumnStatistics applied = data.applied_statistics(),
                         statistics = applied.mean.empty() ? data.column_statistics() : applied;
  Json rows = Json::array();
  for (std::size_t c = 0; c < names.size(); ++c)
    rows.push_back(
        {{"column", names[c]}, {"mean", statistics.mean[c]}, {"deviation", statistics.deviation[c]}});
  return rows;
}

struct Example {
  std::int64_t index = 0, steps = 0, counted = 0;
  std::vector<PackedSequence> sequences = {};  ///< one, where nothing is packed
  std::vector<std::int32_t> tokens = {}, source = {};
  std::vector<float> values = {};
};

/// Without padding.
Example read_example(const Dataset& data, std::int64_t index) {
  Example example{.index = index, .steps = data.steps(index)};
  const auto length = static_cast<std::size_t>(data.length()),
             steps = static_cast<std::size_t>(example.steps);
  const auto columns = static_cast<std::size_t>(data.columns());
  TokenRows rows(data);
  example.sequences = data.read_sequences(index, rows.tokens, rows.targets);
  example.sequences.back().end = example.steps;
  std::vector<float> targets(length * static_cast<std::size_t>(data.target_columns()));
  example.values.resize(length * columns);
  data.read_values(index, example.values, targets);
  example.values.resize(steps * columns);
  example.source.resize(static_cast<std::size_t>(data.source_length()));
  data.read_source(index, example.source);
  std::erase(example.source, -1);
  example.counted = std::ranges::count_if(rows.targets, [](std::int32_t target) { return target >= 0; }) +
                    std::ranges::count_if(targets, [](float target) { return !std::isnan(target); });
  example.tokens = std::move(rows.tokens);
  example.tokens.resize(steps * data.fields().size());
  return example;
}

/// The labels of an example's sequences, with commas between them; empty where they have none.
std::string labels_of(const Dataset& data, const Example& example) {
  std::vector<std::string> names;
  for (const PackedSequence& sequence : example.sequences)
    if (sequence.label >= 0) names.push_back(name_of_label(data, sequence.label));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Writes the tokens of examples as text, each sequence on lines of its own.
class ExampleText {
 public:
  ExampleText(const Dataset& data, const DataOptions& options)
      : pairs_(data.vocabulary() == pair_vocabulary),
        text_(data.tokenizer(), pairs_ ? pair_separator : data.vocabulary(), options.kind == "fasta") {}

  std::string operator()(const Example& example) const {
    const std::span tokens(example.tokens);
    std::vector<std::string> texts;
    std::size_t begin = 0;
    for (const PackedSequence& sequence : example.sequences) {
      const auto end = static_cast<std::size_t>(sequence.end);
      texts.push_back(text_of(tokens.subspan(begin, end - begin), example.source));
      begin = end;
    }
    return fmt::format("{}", fmt::join(texts, "\n"));
  }

 private:
  std::string text_of(std::span<const std::int32_t> tokens, const std::vector<std::int32_t>& source) const {
    if (!pairs_) return text_.text(tokens);
    const auto before = [&](std::int32_t token) {
      return static_cast<std::size_t>(std::ranges::find(tokens, token) - tokens.begin());
    };
    const auto end = before(pair_end), separator = before(pair_separator);
    if (!source.empty()) return text_.text(source) + " → " + text_.text(tokens.first(end));
    return text_.text(tokens.first(separator)) + " → " +
           text_.text(tokens.subspan(separator + 1, end - separator - 1));
  }

  bool pairs_;
  TokenText text_;
};

bool is_text(const DataOptions& options) {
  constexpr std::string_view kinds[] = {"text", "lines", "pairs", "reverse", "fasta"};
  return std::ranges::count(kinds, options.kind) > 0;
}

/// The first rows of numbers [rows, columns], each as a column of a table. `unit` is what a row is called.
template <class T>
void print_rows(const std::string& unit, const std::vector<T>& numbers,
                const std::vector<std::string>& columns) {
  constexpr std::size_t rows_shown = 8, columns_shown = 12;
  const std::size_t rows = std::min(rows_shown, numbers.size() / columns.size());
  std::vector<std::string> keys = {unit};
  for (std::size_t row = 0; row < rows; ++row) keys.push_back(fmt::format("{}", row));
  Json table = Json::array();
  for (std::size_t c = 0; c < std::min(columns.size(), columns_shown); ++c) {
    table.push_back({{unit, columns[c]}});
    for (std::size_t row = 0; row < rows; ++row)
      table.back()[keys[row + 1]] = numbers[row * columns.size() + c];
  }
  print_table(table, keys);
  if (columns.size() > columns_shown) fmt::print("and {} more\n", columns.size() - columns_shown);
}

std::vector<std::string> numbered(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("{}", i));
  return names;
}

/// The names of the real numbers in a row of an example.
std::vector<std::string> columns_in(const Dataset& data, const Example& example) {
  std::vector<std::string> names = data.column_names();
  const auto columns = static_cast<std::size_t>(data.columns() / data.patch());
  if (names.empty()) return numbered(columns);
  const auto first = names.begin() + data.first_column(example.index);
  return {first, first + static_cast<std::ptrdiff_t>(columns)};
}

void print_example(const Dataset& data, const DataOptions& options, const std::string& part,
                   const Example& example) {
  constexpr std::size_t most_bytes = 400;
  const std::string labels = labels_of(data, example);
  fmt::print("\nexample {} of {}: {}{} steps, {} targets that count\n", example.index, part,
             labels.empty() ? "" : "label " + as_line(labels) + ", ", example.steps, example.counted);
  if (is_text(options))
    return fmt::print("{}\n", printable(shortened(ExampleText(data, options)(example), most_bytes)));
  if (image_shape(data).height > 0) return;
  if (data.columns() > 0)
    return print_rows(data.patch() > 1 ? "row" : "step", example.values, columns_in(data, example));
  print_rows("step", example.tokens, numbered(data.fields().size()));
}

Json json_of(const Dataset& data, const DataOptions& options, const Example& example) {
  Json json = {{"index", example.index}, {"steps", example.steps}, {"counted", example.counted}};
  if (const std::string labels = labels_of(data, example); !labels.empty()) json["label"] = labels;
  if (!example.source.empty()) json["source"] = example.source;
  if (!example.tokens.empty()) json["tokens"] = example.tokens;
  if (!example.values.empty()) json["values"] = example.values;
  if (is_text(options)) json["text"] = ExampleText(data, options)(example);
  return json;
}

void print_sizes(const Json& sizes) {
  Json rows = Json::array();
  std::vector<std::string> keys = {"part", "examples", "steps"};
  for (const Json& part : sizes) {
    rows.push_back({{"part", part["part"]}, {"examples", part["examples"]}, {"steps", part["steps"]}});
    if (!part.contains("rows")) continue;
    keys = {"part", "examples", "steps", "file", "first", "end"};
    for (const Json& stretch : part["rows"]) {
      if (&stretch != &part["rows"].front()) rows.push_back({{"part", ""}});
      rows.back().update(stretch);
      if (stretch.contains("first_time"))
        keys = {"part", "examples", "steps", "file", "first", "end", "first_time", "last_time"};
    }
  }
  print_table(rows, keys);
}

/// The pictures of the examples as one.
void write_pictures(const Arguments& arguments, const Dataset& data, const std::vector<Example>& examples) {
  const ImageShape shape = image_shape(data);
  ModelConfig config;
  config.image_height = shape.height;
  config.image_width = shape.width;
  config.image_channels = shape.channels;
  config.length = data.length();
  config.vocabulary = data.vocabulary();
  std::vector<std::vector<std::int32_t>> tokens;
  for (const Example& example : examples) tokens.push_back(example.tokens);
  write_png(arguments.out, picture_grid(config, tokens));
}

/// All of it, as --json prints it.
Json found(const Arguments& arguments, const DataOptions& options, const std::vector<Part>& parts,
           const Dataset& data, const std::vector<Example>& examples) {
  Json json = {{"kind", options.kind}, {"data", options.path}, {"parts", sizes_of(parts, options)}};
  if (const Json labels = labels_of(parts); !labels.empty()) json["labels"] = labels;
  if (const Json columns = columns_of(*parts.front().data); !columns.empty()) json["columns"] = columns;
  json["split"] = arguments.split;
  json["examples"] = Json::array();
  for (const Example& example : examples) json["examples"].push_back(json_of(data, options, example));
  return json;
}

void print_found(const Json& found, const std::vector<Part>& parts) {
  const std::string path = found["data"];
  fmt::print("data of kind \"{}\"{}\n", found["kind"].get<std::string>(), path.empty() ? "" : " in " + path);
  print_sizes(found["parts"]);
  if (found.contains("labels")) {
    std::vector<std::string> keys = {"label"};
    for (const Part& part : parts) keys.push_back(part.name);
    fmt::print("\n{}", table_of(found["labels"], keys));
  }
  if (found.contains("columns"))
    fmt::print("\n{}", table_of(found["columns"], {"column", "mean", "deviation"}));
}

void run(const Arguments& arguments) {
  RunConfig config = config_of(arguments);
  std::vector<NamedPath> inputs;
  for (const std::string* source : sources_of(config.data)) inputs.push_back({"the data's", *source});
  check_outputs("data", {{"--out", arguments.out}}, inputs);
  const Datasets datasets = open_datasets(config.data);
  const std::vector<Part> parts = parts_of(datasets, config.data);
  const auto part = std::ranges::find(parts, arguments.split, &Part::name);
  if (part == parts.end()) {
    std::vector<std::string> names;
    for (const Part& one : parts) names.push_back(one.name);
    fail<UsageError>("data", "expected --split of a part that the data have, {}, got {}",
                     fmt::join(names, " or "), arguments.split);
  }
  const Dataset& data = *part->data;
  const bool draws = !arguments.out.empty();
  if (draws && image_shape(data).height == 0)
    fail<UsageError>("data", "expected data of pictures for --out, got data of kind \"{}\"",
                     config.data.kind);
  const std::int64_t wanted = arguments.examples > 0 ? arguments.examples
                              : draws                ? most_pictures
                                                     : most_examples;
  const std::int64_t count = std::min(wanted, data.size());
  std::vector<Example> examples;
  for (std::int64_t i = 0; i < count; ++i) examples.push_back(read_example(data, i * data.size() / count));
  if (draws) write_pictures(arguments, data, examples);
  for (const std::string& sentence : doubts_of(config.data, *parts.front().data, datasets.validation.get()))
    print_note("warning: " + sentence);
  const Json json = found(arguments, config.data, parts, data, examples);
  if (arguments.json) return print_json(json);
  print_found(json, parts);
  if (draws)
    return print_summary(arguments.out,
                         fmt::format("\n{} pictures of {}: {}\n", count, arguments.split, arguments.out));
  for (const Example& example : examples) print_example(data, config.data, arguments.split, example);
}

}  // namespace

void add_show(Command& data) {
  auto arguments = std::make_shared<Arguments>();
  arguments->split = "training";
  Command show = data.add_subcommand(
      "show", "What a configuration reads from its data: parts, labels, columns and examples");
  show.footer(
      "Example: linnet data show series --data ETTh1.csv\n"
      "         linnet data show mnist-small --data mnist --out digits.png");
  show.add_option("model", arguments->model,
                  "TOML file or name of a shipped configuration; or the folder of a run")
      .required();
  show.add_option("--data", arguments->data,
                  "as for linnet train; default: that of the configuration or run");
  show.add_option("--set", arguments->settings, "replace a value of the configuration, key=value");
  show.add_option("--split", arguments->split, "part that the examples are from")
      .check(one_of(split_names()))
      .capture_default_str();
  show.add_option("--examples", arguments->examples,
                  "number of examples, evenly spaced; default: 3, or 64 pictures")
      .check(whole(1, most_count));
  show.add_option("--out", arguments->out, "PNG file for the examples, where they are pictures");
  show.add_flag("--json", arguments->json, "print the result as JSON");
  show.callback([=] { run(*arguments); });
}

}  // namespace linnet
