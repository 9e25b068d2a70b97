#include "reference/transformer.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace linnet::reference {
namespace {

/// Logits from the first `vocabulary` rows of the embedding's table.
Matrix tied_head(const Matrix& x, const Parameters& parameters, std::int64_t vocabulary) {
  const std::vector<double>& table = parameters.at("embedding.weight");
  Parameters head;
  head["head.weight"].assign(table.begin(), table.begin() + vocabulary * x.columns);
  if (parameters.contains("head.bias")) head["head.bias"] = parameters.at("head.bias");
  return dense(x, head, "head");
}

/// The first layer of the linformer family.
std::string owner_of_projections(const std::vector<std::string>& families) {
  const auto first = std::ranges::find(families, "linformer");
  return "layers." + std::to_string(first - families.begin()) + ".attention";
}

}  // namespace

BlockSettings block_settings(const ModelConfig& config, std::int64_t layer) {
  // A list of plain names is all that tests give.
  std::vector<std::string> families = {name_of(config.attention.family)};
  if (!config.attention.layers.empty()) {
    families.clear();
    std::istringstream list(config.attention.layers);
    for (std::string name; std::getline(list, name, ',');) families.push_back(name);
  }
  const std::string family = families[static_cast<std::size_t>(layer) % families.size()];
  BlockSettings settings = {
      {family, config.attention.linear.feature_map, config.attention.linear.alpha, config.attention.epsilon,
       config.attention.normalise == Normalise::sum, config.heads, !config.masked()},
      name_of(config.activation),
      config.norm == NormOrder::pre};
  if (family == "local") settings.attention.window = config.attention.local.window;
  settings.attention.rotary = config.positions == Positions::rotary;
  settings.attention.rank = config.attention.linformer.rank;
  settings.attention.projection_length = config.length;
  if (config.attention.linformer.sharing == ProjectionSharing::layerwise)
    settings.attention.projections_of = owner_of_projections(families);
  return settings;
}

Matrix head_parameters(const ModelConfig& config, const Parameters& parameters,
                       std::span<const std::int32_t> ids, std::int64_t length,
                       std::span<const BlockMasks> masks, std::span<const std::int64_t> key_lengths) {
  Matrix x = embedding(ids, length, config.width, parameters, "embedding", name_of(config.positions));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    BlockSettings settings = block_settings(config, layer);
    settings.attention.key_lengths.assign(key_lengths.begin(), key_lengths.end());
    x = block(x, length, parameters, "layers." + std::to_string(layer), settings,
              masks.empty() ? BlockMasks{} : masks[static_cast<std::size_t>(layer)]);
  }
  if (config.norm == NormOrder::pre) x = norm(x, parameters, "final_norm");
  return config.tied_output ? tied_head(x, parameters, config.vocabulary) : dense(x, parameters, "head");
}

std::vector<double> log_probabilities(const ModelConfig& config, std::span<const double> row) {
  return config.head == OutputDistribution::logistics ? logistics_log_probabilities(row, config.vocabulary)
                                                      : categorical_log_probabilities(row);
}

double loss(const ModelConfig& config, const Parameters& parameters, std::span<const std::int32_t> ids,
            std::span<const std::int32_t> targets, std::int64_t length, std::span<const BlockMasks> masks,
            std::span<const std::int64_t> key_lengths) {
  const Matrix rows = head_parameters(config, parameters, ids, length, masks, key_lengths);
  const auto columns = static_cast<std::size_t>(rows.columns);
  double sum = 0;
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (targets[i] >= 0)
      sum -= log_probabilities(
          config, std::span(rows.values).subspan(i * columns, columns))[static_cast<std::size_t>(targets[i])];
  return sum;
}

}  // namespace linnet::reference
