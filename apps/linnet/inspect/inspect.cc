#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "attention/family.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"
#include "commands.h"
#include "config.h"
#include "inspect/ranks.h"
#include "linnet/attention.h"
#include "linnet/model.h"
#include "model/access.h"
#include "model/config.h"
#include "model/cost.h"
#include "model/network.h"
#include "report.h"
#include "run_record.h"

namespace linnet {
namespace {

constexpr std::int64_t lengths[] = {1, 784, 4096, 100000, 1000000};

/// Bytes that a layer of that family keeps of `position` tokens.
double state_bytes(const ModelConfig& config, Family family, std::int64_t position) {
  const std::int64_t dim = config.width / config.heads;
  const std::size_t number =
      family == Family::softmax ? size_of(config.attention.softmax.cache) : sizeof(float);
  return static_cast<double>(number) * static_cast<double>(make_attention(attention_of(config, family))
                                                               ->make_state(0, {config.heads, dim, dim})
                                                               ->saved_floats(position));
}

/// Bytes of one stream's past of `position` tokens.
double state_bytes(const ModelConfig& config, std::int64_t position) {
  double bytes = 0;
  for (const Family family : layer_families(config.attention, config.layers))
    bytes += state_bytes(config, family, position);
  if (config.has_encoder())  // what the cross attention reads of a source of the trained length
    bytes += static_cast<double>(config.layers) *
             state_bytes(config, config.attention.family, config.source_length);
  return bytes;
}

/// What a generated token costs at several positions: with the model's own attention where it has a recurrent
/// form, with linear attention, null where the program does not know the feature map, which other families
/// never use, and with softmax with a cache.
Json cost_per_token(const Model& model) {
  const ModelConfig &config = model.config(), cached = with_family(config, Family::softmax),
                    linear = with_family(config, Family::linear);
  Json tokens = Json::array();
  const double weights = static_cast<double>(step_weight_bytes(network_of(model)));
  const bool known_map = is_feature_map(config.attention.linear.feature_map);
  for (const std::int64_t length : lengths) {
    const double position = static_cast<double>(length);
    const double cache = state_bytes(cached, length);
    // A step reads the weights once, reads and writes the linear state, or reads the cache and appends to
    // it.
    Json row = {{"position", length},
                {"linear_flops", nullptr},
                {"linear_state_bytes", nullptr},
                {"linear_bytes_moved", nullptr},
                {"softmax_flops", generation_cost(cached, position).forward()},
                {"softmax_cache_bytes", cache},
                {"softmax_bytes_moved", weights + cache}};
    if (known_map) {
      const double state = state_bytes(linear, length);
      row["linear_flops"] = generation_cost(linear, position).forward();
      row["linear_state_bytes"] = state;
      row["linear_bytes_moved"] = weights + 2 * state;
    }
    if (has_recurrent_form(config)) {
      row["flops"] = generation_cost(config, position).forward();
      row["state_bytes"] = state_bytes(config, length);
    }
    tokens.push_back(row);
  }
  return tokens;
}

struct Arguments {
  std::string model;
  std::vector<std::string> settings;
  RanksOptions ranks;
  bool json = false;
};

RunConfig configuration_of(const Arguments& arguments) {
  RunConfig config;
  load_without_data(config, arguments.model, arguments.settings);
  return config;
}

/// The training of a run, or the defaults for a model without one.
RunConfig training_of(const Arguments& arguments) {
  const auto run = run_of(arguments.model);
  RunConfig config = run ? RunRecord::read(*run).config : RunConfig();
  config.model = Model::load(arguments.model)->config();
  config.model.weights = WeightType::f32;  // those that are trained
  for (const std::string& setting : arguments.settings) {
    if (!setting.starts_with("training."))
      fail<UsageError>("inspect", "expected keys training.* in --set for a trained model, got {}", setting);
    config.set(setting);
  }
  return config;
}

std::shared_ptr<const Model> model_of(const Arguments& arguments) {
  if (!is_configuration("inspect", arguments.model)) {
    if (!arguments.settings.empty())
      fail<UsageError>("inspect", "expected --set with a configuration or with --ranks, got the model {}",
                       arguments.model);
    return Model::load(arguments.model);
  }
  const RunConfig config = configuration_of(arguments);
  config.check_memory(false);
  return Model::random(config.model);
}

void run_ranks(const Arguments& arguments) {
  arguments.ranks.print(
      arguments.model,
      is_configuration("inspect", arguments.model) ? configuration_of(arguments) : training_of(arguments),
      arguments.json);
}

void run(const Arguments& arguments) {
  const std::string& folder = arguments.model;
  const bool json = arguments.json;
  const std::shared_ptr<const Model> model = model_of(arguments);
  const ModelConfig& config = model->config();
  Json tensors = Json::array();
  for (const ParameterTable::Row& row : network_of(*model).table().rows())
    tensors.push_back({{"name", row.name}, {"shape", to_string(row.place.shape())}, {"count", row.count}});
  const bool generates = config.causal() && !config.classifies();
  const Json tokens = generates ? cost_per_token(*model) : Json::array();
  if (json) {
    print_json({{"model", folder},
                {"objective", name_of(config.objective)},
                {"family", families_text(config.attention)},
                {"encoder_layers", config.encoder_layers},
                {"feature_map", config.attention.linear.feature_map},
                {"parameters", model->parameter_count()},
                {"weight_bytes", model->weight_bytes()},
                {"training_flops_per_token", training_flops(config)},
                {"per_token", tokens},
                {"tensors", tensors}});
    return;
  }
  const std::vector<Family> families = layer_families(config.attention, config.layers);
  fmt::print(
      "{}: {}{} attention{}, {} layers, {} heads, width {}, feed-forward {}, {} positions, {} tokens\n",
      folder, config.masked() ? "encoder, " : "", families_text(config.attention),
      feature_map_of(config) ? " (" + config.attention.linear.feature_map + ")" : "", config.layers,
      config.heads, config.width, config.feed_forward, name_of(config.positions), config.length);
  if (config.has_encoder())
    fmt::print("encoder: {} layers over sources of {} tokens out of {}\n", config.encoder_layers,
               config.source_length, config.source_tokens());
  fmt::print("{} parameters, {} of weights, {:.3g} MFLOP per training token\n\n", model->parameter_count(),
             bytes_text(static_cast<double>(model->weight_bytes())), training_flops(config) / 1e6);
  if (!generates) {
    print_table(tensors, {"name", "shape", "count"});
    return;
  }
  fmt::print("Cost of one generated token of one stream, with linear attention and with cached softmax:\n\n");
  Json readable = Json::array();
  std::vector<std::string> columns = {"position",      "linear MFLOP", "state", "moved",
                                      "softmax MFLOP", "cache",        "moved "};
  // Those of the model itself, unless they are already among them.
  const auto all_are = [&](Family family) {
    return std::ranges::all_of(families, [=](Family other) { return other == family; });
  };
  const bool own = has_recurrent_form(config) && !all_are(Family::linear) && !all_are(Family::softmax);
  if (own) columns.insert(columns.begin() + 1, {"MFLOP", "own state"});
  const auto mega = [](const Json& number) {
    return number.is_null() ? Json() : Json(number.get<double>() / 1e6);
  };
  const auto bytes = [](const Json& number) { return number.is_null() ? Json() : Json(bytes_text(number)); };
  for (const Json& row : tokens) {
    readable.push_back({{"position", row["position"]},
                        {"linear MFLOP", mega(row["linear_flops"])},
                        {"state", bytes(row["linear_state_bytes"])},
                        {"moved", bytes(row["linear_bytes_moved"])},
                        {"softmax MFLOP", mega(row["softmax_flops"])},
                        {"cache", bytes(row["softmax_cache_bytes"])},
                        {"moved ", bytes(row["softmax_bytes_moved"])}});
    if (!own) continue;
    readable.back()["MFLOP"] = mega(row["flops"]);
    readable.back()["own state"] = bytes(row["state_bytes"]);
  }
  print_table(readable, columns);
  fmt::print("\n");
  print_table(tensors, {"name", "shape", "count"});
}

}  // namespace

void add_inspect(Command& program) {
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand(
      "inspect", "Sizes of a model, and the cost of a generated token or of training on several machines");
  command.footer(
      "Example: linnet inspect runs/digits\n"
      "         linnet inspect paper-mnist --ranks 2:64 --bandwidth 1,10");
  command
      .add_option("model", arguments->model,
                  "folder of a model or of a run; or a configuration: a file, or the name of a shipped one")
      .required();
  command.add_option("--set", arguments->settings, "replace a value of the configuration, key=value");
  arguments->ranks.add_to(command);
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { arguments->ranks.given() ? run_ranks(*arguments) : run(*arguments); });
}

}  // namespace linnet
