#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <optional>

#include "answers.h"
#include "attention/family.h"
#include "base/fail.h"
#include "base/names.h"
#include "checks.h"
#include "commands.h"
#include "config.h"
#include "data/fingerprint.h"
#include "given_data.h"
#include "io/file.h"
#include "linnet/tokenizer.h"
#include "metrics_file.h"
#include "model/files.h"
#include "outputs.h"
#include "rank_threads.h"
#include "ranks.h"
#include "report.h"
#include "run_record.h"

namespace linnet {
namespace {

struct Arguments {
  std::string model, data, data_kind, attention, feature_map, directions, per_token, split = "validation",
                                                                                     target;
  std::vector<std::string> settings;
  std::string missing;
  std::int64_t examples = 0, batch = 8, features = 0;
  bool json = false;
  int threads = 0;
  std::vector<Option> options;  ///< all of the command
};

/// What replaces the model's own attention, in every layer. A feature map's name stands for the linear family
/// with that map.
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
    set("layers", "");
    set("feature_map", arguments.attention);
  } else if (!arguments.attention.empty()) {
    set("family", arguments.attention);
    set("layers", "");
  }
  if (!arguments.feature_map.empty()) set("feature_map", arguments.feature_map);
  if (arguments.features > 0) set("features", fmt::format("{}", arguments.features));
  if (!arguments.directions.empty()) set("directions", arguments.directions);
  for (const std::string& setting : arguments.settings) {
    const std::string key = setting.substr(0, setting.find('='));
    if (!key.starts_with("attention.") || key == "attention.family" || key == "attention.layers" ||
        key == "attention.decay")
      fail<UsageError>(
          "evaluate",
          "expected keys attention.* other than attention.family, .layers and .decay with --set, got {}",
          shortened(setting));
    settings.push_back(setting);
  }
  return settings;
}

/// Throws UsageError where --attention names a family that the model's weights are not for: lsh takes its
/// keys from the queries, and linear attention alone has a decay.
void check_family(const Arguments& arguments) {
  if (arguments.attention.empty() || is_feature_map(arguments.attention)) return;
  const ModelConfig config = read_config(std::filesystem::path(arguments.model) / config_file);
  const Family given = find_family(arguments.attention);
  const bool queries = info_of(given).keys_are_queries;
  if (config.attention.linear.decay != Decay::none && !info_of(given).takes_decay)
    fail<UsageError>("evaluate",
                     "expected --attention with the linear family or one of its feature maps for weights "
                     "trained with attention.decay, got {}",
                     arguments.attention);
  for (const Family family : layer_families(config.attention, config.layers))
    if (info_of(family).keys_are_queries != queries)
      fail<UsageError>("evaluate", "expected --attention with {}, as the model's layers of {}, got {}",
                       queries ? "keys of its own" : "queries for keys", name_of(family),
                       arguments.attention);
}

/// A feature map means nothing to a model without linear attention, nor features and directions to one
/// without a random map.
void check_features(const Arguments& arguments, const ModelConfig& config) {
  const std::optional<std::string> map = feature_map_of(config);
  if (!arguments.feature_map.empty() && !map)
    fail<UsageError>("evaluate", "expected layers of linear attention with --feature-map, got {}",
                     families_text(config.attention));
  const bool random = map && is_random_feature_map(*map);
  const auto of_random_maps = [&](const char* option, bool given) {
    if (given && !random)
      fail<UsageError>("evaluate", "expected a random feature map with {}, got {}", option,
                       map ? *map : families_text(config.attention));
  };
  of_random_maps("--features", arguments.features > 0);
  of_random_maps("--directions", !arguments.directions.empty());
}

Json json_of(const Evaluation::NumberErrors& errors) {
  Json json = {{"squared_error", errors.squared},
               {"absolute_error", errors.absolute},
               {"naive_squared_error", errors.naive_squared},
               {"naive_absolute_error", errors.naive_absolute}};
  if (!std::isnan(errors.seasonal_squared)) {
    json["seasonal_squared_error"] = errors.seasonal_squared;
    json["seasonal_absolute_error"] = errors.seasonal_absolute;
  }
  return json;
}

/// Errors of each column, where there are several.
Json errors_of_columns(const Evaluation& result, const std::vector<std::string>& names) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < result.column_errors.size() && names.size() > 1; ++i) {
    rows.push_back(json_of(result.column_errors[i]));
    rows.back()["column"] = names[i];
    rows.back()["deviation"] = result.column_deviations[i];
  }
  return rows;
}

/// Errors of the first of the rows that a step predicts, of those up to the 24th and of all of them, where
/// there are several. Each row has as many numbers.
Json errors_of_rows(const Evaluation& result) {
  Json rows = Json::array();
  const auto count = static_cast<std::int64_t>(result.row_errors.size());
  constexpr std::int64_t day = 24;
  for (const std::int64_t last : {std::int64_t{1}, day, count}) {
    if (count < 2 || (last == day && count <= day)) continue;
    Evaluation::NumberErrors mean{0, 0, 0, 0, 0, 0};
    for (std::int64_t i = 0; i < last; ++i) {
      const Evaluation::NumberErrors& row = result.row_errors[static_cast<std::size_t>(i)];
      mean.squared += row.squared / static_cast<double>(last);
      mean.absolute += row.absolute / static_cast<double>(last);
      mean.naive_squared += row.naive_squared / static_cast<double>(last);
      mean.naive_absolute += row.naive_absolute / static_cast<double>(last);
      mean.seasonal_squared += row.seasonal_squared / static_cast<double>(last);
      mean.seasonal_absolute += row.seasonal_absolute / static_cast<double>(last);
    }
    rows.push_back(json_of(mean));
    rows.back()["rows"] = last == 1 ? "1" : fmt::format("1 to {}", last);
  }
  return rows;
}

void print_errors(Json rows, const char* name) {
  if (rows.empty()) return;
  for (Json& row : rows)
    for (auto& [key, value] : row.items())
      if (key == "deviation")
        value = fmt::format("{:.4g}", value.get<double>());
      else if (value.is_number())
        value = fmt::format("{:.4f}", value.get<double>());
  std::vector<std::string> keys = {name, "squared_error", "absolute_error", "naive_squared_error",
                                   "naive_absolute_error"};
  for (const char* more : {"seasonal_squared_error", "seasonal_absolute_error", "deviation"})
    if (rows[0].contains(more)) keys.emplace_back(more);
  print_table(rows, keys);
}

/// The measures of a model that does not predict one token per step, for people.
void print_measures(const Model& model, const Evaluation& result, const std::vector<std::string>& columns,
                    double seconds) {
  const ModelConfig& config = model.config();
  const std::string work = fmt::format("{} examples, {:.1f} s", result.examples, seconds);
  if (config.classifies()) {
    fmt::print("accuracy {:.2f} %, {:.4f} bits per label ({})\n", 100 * result.accuracy, result.bits, work);
    constexpr std::int64_t most_shown = 20;
    if (config.classes > most_shown) return;
    Json rows = Json::array();
    std::vector<std::string> keys = {"label"};
    const std::vector<std::string>& names = model.assets().class_names;
    for (std::int64_t j = 0; j < config.classes; ++j)
      keys.push_back(names.empty() ? fmt::format("{}", j) : names[static_cast<std::size_t>(j)]);
    for (std::int64_t i = 0; i < config.classes; ++i) {
      Json row = {{"label", keys[static_cast<std::size_t>(i + 1)]}};
      for (std::int64_t j = 0; j < config.classes; ++j)
        row[keys[static_cast<std::size_t>(j + 1)]] =
            result.confusion[static_cast<std::size_t>(i * config.classes + j)];
      rows.push_back(row);
    }
    fmt::print("examples by label (row) and given label (column):\n");
    print_table(rows, keys);
    return;
  }
  if (!result.field_bits.empty()) {
    double step = 0;
    std::string each;
    for (const double bits : result.field_bits) {
      step += bits;
      each += fmt::format("{}{:.4f}", each.empty() ? "" : ", ", bits);
    }
    fmt::print("{:.4f} bits ({:.4f} nats) per step; per field {}; accuracy {:.1f} % ({})\n", step,
               step * std::numbers::ln2, each, 100 * result.accuracy, work);
  }
  if (config.target_count() == 0) return;
  const bool mixed = !std::isnan(result.token_bits);
  if (mixed)
    fmt::print("{:.4f} bits per token ({} tokens), {:.4f} nats per number ({} numbers)\n", result.token_bits,
               result.tokens - result.numbers, result.value_nats, result.numbers);
  fmt::print("squared error {:.4f}, absolute error {:.4f}, in deviations of the training data{} ({})\n",
             result.squared_error, result.absolute_error,
             mixed ? "" : fmt::format("; {:.4f} bits per number ({} numbers)", result.bits, result.tokens),
             work);
  if (!std::isnan(result.signal_to_noise))
    fmt::print("signal-to-noise ratio {:.2f} dB of the inputs, {:.2f} dB of the outputs\n",
               result.input_signal_to_noise, result.signal_to_noise);
  if (!std::isnan(result.naive_squared_error))
    fmt::print("repeating the last number: squared error {:.4f}, absolute error {:.4f}\n",
               result.naive_squared_error, result.naive_absolute_error);
  if (!std::isnan(result.seasonal_squared_error))
    fmt::print("repeating the last step of {} rows: squared error {:.4f}, absolute error {:.4f}\n",
               config.patch, result.seasonal_squared_error, result.seasonal_absolute_error);
  if (result.column_deviations.size() == 1)
    fmt::print("a deviation is {:.4g} in the units of the data\n", result.column_deviations[0]);
  print_errors(errors_of_rows(result), "rows");
  print_errors(errors_of_columns(result, columns), "column");
}

/// What the measures add to the JSON of every evaluation.
void add_measures(Json& json, const Model& model, const Evaluation& result,
                  const std::vector<std::string>& columns) {
  const ModelConfig& config = model.config();
  if (!result.field_bits.empty()) json["field_bits"] = result.field_bits;
  if (answers_sources(model)) json["exact"] = result.exact;
  if (config.target_count() > 0) {
    json["squared_error"] = result.squared_error;
    json["absolute_error"] = result.absolute_error;
    json["naive_squared_error"] = result.naive_squared_error;
    json["naive_absolute_error"] = result.naive_absolute_error;
    json["seasonal_squared_error"] = result.seasonal_squared_error;
    json["seasonal_absolute_error"] = result.seasonal_absolute_error;
    if (const Json rows = errors_of_rows(result); !rows.empty()) json["rows"] = rows;
    if (const Json each = errors_of_columns(result, columns); !each.empty()) json["columns"] = each;
    if (result.column_deviations.size() == 1) json["deviation"] = result.column_deviations[0];
    json["input_signal_to_noise"] = result.input_signal_to_noise;
    json["signal_to_noise"] = result.signal_to_noise;
  }
  if (!std::isnan(result.token_bits)) {
    json["token_bits"] = result.token_bits;
    json["value_nats"] = result.value_nats;
    json["numbers"] = result.numbers;
  }
  if (result.confusion.empty()) return;
  Json rows = Json::array();
  for (std::int64_t i = 0; i < config.classes; ++i) {
    const auto begin = result.confusion.begin() + i * config.classes;
    rows.push_back(std::vector<std::int64_t>(begin, begin + config.classes));
  }
  json["confusion"] = rows;
  if (const std::vector<std::string>& names = model.assets().class_names; !names.empty())
    json["labels"] = names;
}

void run(const Arguments& arguments, Communicator& ranks) {
  on_first_rank(ranks, [&] {
    check_outputs(
        "evaluate", {{"--per-token", arguments.per_token}},
        {{"the model's", arguments.model}, {"--data", arguments.data}, {"--target", arguments.target}});
  });
  Context context(threads_of_rank(ranks, arguments.threads));
  check_family(arguments);
  const std::vector<std::string> settings = settings_of(arguments);
  const std::shared_ptr<const Model> model = Model::load(arguments.model, settings);
  on_first_rank(ranks, [&] { note_better_evaluation(arguments.model); });
  check_features(arguments, model->config());
  DataOptions source = data_of(
      "evaluate", model->config(),
      {arguments.model, arguments.data, arguments.data_kind, arguments.split, arguments.target, true});
  if (!arguments.missing.empty()) {
    if (source.kind != "series")
      fail<UsageError>("evaluate", "expected data of a series with --missing, got data of kind \"{}\"",
                       source.kind);
    source.missing = arguments.missing;
  }
  const std::unique_ptr<const Dataset> data = open_dataset(source, split_named(arguments.split));
  if (arguments.data.empty() && ranks.rank() == 0) warn_of_changed_data(arguments.model);
  if (!arguments.data.empty() && arguments.split == "test" && ranks.rank() == 0)
    warn_of_training_data(arguments.model, arguments.data);
  if (ranks.size() > 1)
    require_same_work(ranks, {*model,
                              arguments.options,
                              {"model", "--data", "--target", "--per-token", "--threads", "--json"},
                              {{"data", fingerprint_of(source).text()}}});
  // All counted tokens in their order: of a whole split they are its text.
  std::optional<TextStream> text;
  if (!data->tokenizer().empty() && model->config().shifted())
    text.emplace(Tokenizer(data->tokenizer(), data->vocabulary()));
  std::size_t bytes = 0;
  const auto start = std::chrono::steady_clock::now();
  std::string lines = "example,position,token,log_probability,bits\n";
  TokenLossCallback on_token;
  if (!arguments.per_token.empty() || text)
    on_token = [&](const TokenLoss& loss) {
      if (text) bytes += text->add(loss.token).size();
      if (arguments.per_token.empty()) return;
      lines += fmt::format("{},{},{},{:.7g},{:.7g}\n", loss.example, loss.position, loss.token, 0 - loss.nats,
                           loss.nats / std::numbers::ln2);
    };
  const Evaluation result =
      evaluate(context, *model, *data, arguments.examples, arguments.batch, true, on_token, &ranks);
  if (ranks.rank() != 0) return;
  if (!arguments.per_token.empty()) write_file_atomically(arguments.per_token, lines);
  if (text) bytes += text->finish().size();
  // 0 where they cannot be told.
  const double bits_per_byte =
      bytes == 0 ? 0 : result.bits * static_cast<double>(result.tokens) / static_cast<double>(bytes);
  const double seconds = seconds_since(start);
  if (arguments.json) {
    Json json = {{"model", arguments.model},
                 {"family", families_text(model->config().attention)},
                 {"data", !arguments.data.empty() ? arguments.data
                          : source.path.empty()   ? source.kind
                                                  : source.path},
                 {"split", arguments.split},
                 {"examples", result.examples},
                 {"tokens", result.tokens},
                 {"bits_per_token", result.bits},
                 {"perplexity", model->config().columns > 0 ? Json() : Json(result.perplexity)},
                 {"accuracy", result.accuracy},
                 {"non_positive_denominators", result.non_positive},
                 {"seconds", seconds}};
    if (bytes > 0) json["bits_per_byte"] = bits_per_byte;
    add_measures(json, *model, result, data->column_names());
    print_json(json);
    return;
  }
  if (model->config().classifies() || model->config().target_count() > 0 || !result.field_bits.empty())
    return print_measures(*model, result, data->column_names(), seconds);
  std::string summary = fmt::format(
      "{:.4f} bits per token{}, perplexity {:.3f}, accuracy {:.1f} % ({} tokens of {} examples, {:.1f} s)\n",
      result.bits, bytes > 0 ? fmt::format(" ({:.4f} per byte)", bits_per_byte) : "", result.perplexity,
      100 * result.accuracy, result.tokens, result.examples, seconds);
  if (answers_sources(*model))
    summary +=
        fmt::format("{:.2f} % of the examples written exactly by greedy decoding\n", 100 * result.exact);
  if (result.non_positive > 0)
    summary += fmt::format("{:.2g} % of the queries had no positive denominator and gave zeros\n",
                           100 * result.non_positive);
  print_summary(arguments.per_token, summary);
}

}  // namespace

void add_evaluate(Command& program, Communicator& ranks) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand(
      "evaluate", "Bits per token, perplexity, accuracy and errors on validation data");
  command.footer(
      "Bits per token are bits per dimension for pictures (every pixel counts) and bits per byte for text.\n"
      "Text through a tokenizer has both: bits per token and bits per byte.\n"
      "For an encoder only the hidden tokens count. They are the same in every evaluation.\n"
      "Example: linnet evaluate runs/digits\n"
      "         linnet evaluate runs/softmax --data digits --attention favor --features 256\n"
      "         linnet evaluate runs/text --data book.txt --per-token tokens.csv");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_option(
      "--data", arguments->data,
      "digits, copy, reverse, a folder of MNIST, CIFAR-10, PNG or JPEG files, or files of text, FASTA, "
      "tokens, series or sound; default: the data of the run");
  add_data_kind(command, arguments->data_kind);
  add_missing(command, arguments->missing);
  command.add_option(
      "--target", arguments->target,
      "files with the outputs for the sound files of --data, for a model of inputs and outputs");
  command
      .add_option("--split", arguments->split, "part of the data; with --data, test takes all of the files")
      .check(one_of(split_names()))
      .capture_default_str();
  command.add_option("--examples", arguments->examples, "number of examples, evenly spaced; default: all")
      .check(whole(1, most_count));
  command.add_option("--batch", arguments->batch, "examples per pass")
      .check(whole(1, most_count))
      .capture_default_str();
  command.add_option("--per-token", arguments->per_token,
                     "CSV file for the log-probability of every counted token, in nats, and its bits");
  command.add_option(
      "--attention", arguments->attention,
      "use the weights with another attention family in every layer, or with a feature map of the linear "
      "family (for example favor)");
  command.add_option("--set", arguments->settings,
                     "replace a setting of the attention, attention.KEY=VALUE; may be repeated");
  command.add_option("--feature-map", arguments->feature_map, "use the weights with another feature map");
  command.add_option("--features", arguments->features, "number of features of a random map; default: E ln E")
      .check(whole(1, most_count));
  command.add_option(
      "--directions", arguments->directions,
      "directions of a random map: auto, orthogonal, independent or hadamard; default: the model's");
  add_threads_of_rank(command, arguments->threads);
  command.add_flag("--json", arguments->json, "print the result as JSON");
  arguments->options = command.options();
  command.callback([arguments, &ranks] { run(*arguments, ranks); });
}

}  // namespace linnet
