#include <fmt/core.h>

#include "base/memory.h"
#include "commands.h"
#include "linnet/attention.h"
#include "linnet/model.h"
#include "model/access.h"
#include "model/cost.h"
#include "model/network.h"
#include "report.h"

namespace linnet {
namespace {

constexpr std::int64_t lengths[] = {1, 784, 4096, 100000, 1000000};

/// Bytes of one stream's past after its first token and for each further one: both families grow evenly.
struct StateGrowth {
  double first, each;
  double at(std::int64_t tokens) const { return first + each * static_cast<double>(tokens - 1); }
};

StateGrowth state_growth(const ModelConfig& config) {
  const std::int64_t dim = config.width / config.heads;
  const auto state = make_attention(attention_of(config))->make_state(0, {config.heads, dim, dim});
  const auto bytes = [&](std::int64_t position) {
    return static_cast<double>(config.layers) * sizeof(float) *
           static_cast<double>(state->saved_floats(position));
  };
  return {bytes(1), bytes(2) - bytes(1)};
}

/// What a generated token costs at several positions, with the model's attention as linear and as softmax
/// with a cache.
Json cost_per_token(const Model& model) {
  const ModelConfig& config = model.config();
  ModelConfig cached = config;
  cached.attention.family = Family::softmax;
  cached.attention.linear.decay = Decay::none;
  ModelConfig linear = config;
  linear.attention.family = Family::linear;
  const StateGrowth linear_growth = state_growth(linear), cache_growth = state_growth(cached);

  Json tokens = Json::array();
  const double weights = static_cast<double>(model.weight_bytes());
  for (const std::int64_t length : lengths) {
    const double position = static_cast<double>(length);
    const double state = linear_growth.at(length), cache = cache_growth.at(length);
    // A step reads every weight once, reads and writes the linear state, or reads the cache and appends to
    // it.
    tokens.push_back({{"position", length},
                      {"linear_flops", generation_cost(linear, position).forward()},
                      {"linear_state_bytes", state},
                      {"linear_bytes_moved", weights + 2 * state},
                      {"softmax_flops", generation_cost(cached, position).forward()},
                      {"softmax_cache_bytes", cache},
                      {"softmax_bytes_moved", weights + cache}});
  }
  return tokens;
}

void run(const std::string& folder, bool json) {
  const std::shared_ptr<const Model> model = Model::load(folder);
  const ModelConfig& config = model->config();
  Json tensors = Json::array();
  for (const ParameterTable::Row& row : network_of(*model).table().rows())
    tensors.push_back({{"name", row.name}, {"shape", to_string(row.place.shape())}, {"count", row.count}});
  const Json tokens = config.masked() ? Json::array() : cost_per_token(*model);
  if (json) {
    print_json({{"model", folder},
                {"objective", name_of(config.objective)},
                {"family", name_of(config.attention.family)},
                {"feature_map", config.attention.linear.feature_map},
                {"parameters", model->parameter_count()},
                {"weight_bytes", model->weight_bytes()},
                {"training_flops_per_token", training_flops(config)},
                {"per_token", tokens},
                {"tensors", tensors}});
    return;
  }
  fmt::print(
      "{}: {}{} attention{}, {} layers, {} heads, width {}, feed-forward {}, {} positions, {} tokens\n",
      folder, config.masked() ? "encoder, " : "", name_of(config.attention.family),
      config.attention.family == Family::linear ? " (" + config.attention.linear.feature_map + ")" : "",
      config.layers, config.heads, config.width, config.feed_forward, name_of(config.positions),
      config.length);
  fmt::print("{} parameters, {} of weights, {:.3g} MFLOP per training token\n\n", model->parameter_count(),
             bytes_text(static_cast<double>(model->weight_bytes())), training_flops(config) / 1e6);
  if (config.masked()) {
    print_table(tensors, {"name", "shape", "count"});
    return;
  }
  fmt::print("Cost of one generated token of one stream, with linear attention and with cached softmax:\n\n");
  Json readable = Json::array();
  for (const Json& row : tokens)
    readable.push_back({{"position", row["position"]},
                        {"linear MFLOP", row["linear_flops"].get<double>() / 1e6},
                        {"state", bytes_text(row["linear_state_bytes"])},
                        {"moved", bytes_text(row["linear_bytes_moved"])},
                        {"softmax MFLOP", row["softmax_flops"].get<double>() / 1e6},
                        {"cache", bytes_text(row["softmax_cache_bytes"])},
                        {"moved ", bytes_text(row["softmax_bytes_moved"])}});
  print_table(readable, {"position", "linear MFLOP", "state", "moved", "softmax MFLOP", "cache", "moved "});
  fmt::print("\n");
  print_table(tensors, {"name", "shape", "count"});
}

}  // namespace

void add_inspect(Command& program) {
  struct Arguments {
    std::string model;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  Command command = program.add_subcommand("inspect", "Sizes of a model, and the cost of a generated token");
  command.footer("Example: linnet inspect runs/digits");
  command.add_option("model", arguments->model, "folder of a model or of a run").required();
  command.add_flag("--json", arguments->json, "print the result as JSON");
  command.callback([=] { run(arguments->model, arguments->json); });
}

}  // namespace linnet
