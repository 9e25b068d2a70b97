#include "reference/transformer.h"

#include <algorithm>
#include <cmath>
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
       config.attention.normalise == Normalise::sum, config.heads, config.causal()},
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

namespace {

/// What input column c of row i is counted from where inputs are relative: the last number of its series in
/// the row before, or the first one of the row itself.
double last_number(const ModelConfig& config, const Steps& steps, std::size_t i, std::size_t c) {
  const auto columns = static_cast<std::size_t>(config.columns),
             series = columns / static_cast<std::size_t>(config.patch);
  const bool first = i % static_cast<std::size_t>(steps.length) == 0;
  const float before = first ? std::nanf("") : steps.values[i * columns - series + c % series];
  return std::isnan(before) ? steps.values[i * columns + c % series] : before;
}

Memory encoder_rows(const ModelConfig& config, const Parameters& parameters, const Steps& steps) {
  const std::int64_t length = std::ssize(steps.source) / steps.batch;
  Matrix x = embedding(steps.source, length, config.width, parameters, "encoder.embedding",
                       name_of(config.positions));
  for (std::int64_t layer = 0; layer < config.encoder_layers; ++layer) {
    BlockSettings settings = block_settings(config);
    settings.attention.causal = false;
    settings.attention.key_lengths = steps.source_lengths;
    x = block(x, length, parameters, "encoder.layers." + std::to_string(layer), settings);
  }
  if (config.norm == NormOrder::pre) x = norm(x, parameters, "encoder.final_norm");
  return {x, length, steps.source_lengths};
}

}  // namespace

Matrix hidden_rows(const ModelConfig& config, const Parameters& parameters, const Steps& steps) {
  const auto fields = static_cast<std::size_t>(config.input_fields());
  const auto columns = static_cast<std::size_t>(config.columns),
             width = static_cast<std::size_t>(config.width);
  const auto rows = static_cast<std::size_t>(steps.batch * steps.length);
  Matrix x(steps.batch * steps.length, config.width, std::vector<double>(rows * width, 0.0));
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < width; ++j) {
      double& sum = x.values[i * width + j];
      for (std::size_t f = 0; f < fields; ++f) {
        const std::string name =
            f == 0 ? "embedding.weight" : "embedding.fields." + std::to_string(f) + ".weight";
        const std::int32_t id = steps.ids[i * fields + f];
        if (id >= 0) sum += parameters.at(name)[static_cast<std::size_t>(id) * width + j];
      }
      if (columns > 0) sum += parameters.at("embedding.columns.bias")[j];
      for (std::size_t c = 0; c < columns; ++c) {
        const float value = steps.values[i * columns + c];
        if (std::isnan(value)) continue;
        const double base =
            config.relative_inputs ? last_number(config, steps, i, c) : parameters.at("columns.mean")[c];
        sum += parameters.at("embedding.columns.weight")[j * columns + c] * (value - base) /
               parameters.at("columns.deviation")[c];
      }
      const std::size_t position = i % static_cast<std::size_t>(steps.length);
      if (config.positions == Positions::learned)
        sum += parameters.at("embedding.positions")[position * width + j];
      if (config.positions == Positions::sinusoidal)
        sum += sinusoid(static_cast<std::int64_t>(position), static_cast<std::int64_t>(j), config.width);
    }
  Memory memory;
  if (config.encoder_layers > 0) memory = encoder_rows(config, parameters, steps);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    BlockSettings settings = block_settings(config, layer);
    settings.attention.key_lengths = steps.key_lengths;
    x = block(x, steps.length, parameters, "layers." + std::to_string(layer), settings, {},
              config.encoder_layers > 0 ? &memory : nullptr);
  }
  return config.norm == NormOrder::pre ? norm(x, parameters, "final_norm") : x;
}

namespace {

constexpr double half_log_two_pi = 0.91893853320467274178;

/// −log p of a number with the parameters of one target: mean, log-scale and log(ν − 1).
double value_nll(ValueDistribution kind, double target, double mean, double log_scale, double log_freedom) {
  const double error = target - mean;
  if (kind == ValueDistribution::squared_error) return half_log_two_pi + error * error / 2;
  const double z = error / std::exp(log_scale);
  if (kind == ValueDistribution::gaussian) return half_log_two_pi + log_scale + z * z / 2;
  const double nu = 1 + std::exp(log_freedom);
  return std::lgamma(nu / 2) - std::lgamma((nu + 1) / 2) + std::log(nu * 3.14159265358979323846) / 2 +
         log_scale + (nu + 1) / 2 * std::log(1 + z * z / nu);
}

/// The row as a matrix of one.
Matrix row_of(const Matrix& x, std::size_t i) {
  const auto columns = static_cast<std::size_t>(x.columns);
  const auto begin = x.values.begin() + static_cast<std::ptrdiff_t>(i * columns);
  return Matrix(1, x.columns, std::vector<double>(begin, begin + x.columns));
}

double tokens_nll(const ModelConfig& config, const Parameters& parameters, const Steps& steps,
                  const Matrix& hidden) {
  const auto weight_of = [&](std::size_t field) {
    return steps.field_weights.empty() ? 1 : steps.field_weights[field];
  };
  const std::size_t fields = config.field_sizes().size(), rows = steps.targets.size() / fields;
  double sum = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    Matrix u = row_of(hidden, i);
    for (std::size_t f = 0; f < fields; ++f) {
      const std::string name = "fields." + std::to_string(f);
      Matrix logits = dense(u, parameters, "head");
      if (f > 0 && config.masked()) {
        logits = dense(u, parameters, name + ".head");
      } else if (f > 0) {
        const std::vector<std::int32_t>& known = steps.conditions.empty() ? steps.targets : steps.conditions;
        const std::int32_t before = known[i * fields + f - 1];
        const auto& table = parameters.at(name + ".before.weight");
        for (std::size_t j = 0; j < u.values.size() && before >= 0; ++j)
          u.values[j] += table[static_cast<std::size_t>(before) * u.values.size() + j];
        Matrix mixed = dense(u, parameters, name + ".mix");
        for (double& value : mixed.values) value = activation("gelu", value);
        logits = dense(mixed, parameters, name + ".head");
      }
      const std::int32_t target = steps.targets[i * fields + f];
      if (target >= 0)
        sum -= weight_of(f) * log_probabilities(config, logits.values)[static_cast<std::size_t>(target)];
    }
  }
  return sum;
}

double values_nll(const ModelConfig& config, const Parameters& parameters, const Steps& steps,
                  const Matrix& hidden) {
  const auto targets = static_cast<std::size_t>(config.target_count()),
             columns = static_cast<std::size_t>(config.columns);
  const Matrix rows = dense(hidden, parameters, "value_head");
  const std::size_t each = static_cast<std::size_t>(rows.columns);
  double sum = 0;
  for (std::size_t i = 0; i < steps.value_targets.size(); ++i) {
    if (std::isnan(steps.value_targets[i])) continue;
    const std::size_t row = i / targets, t = i % targets;
    double base = parameters.at("columns.target_mean")[t];
    if (config.relative) {
      const std::size_t series = columns / static_cast<std::size_t>(config.patch);
      const float last = steps.values[row * columns + columns - series + t % series];
      if (!std::isnan(last)) base = last;
    }
    const double z = (steps.value_targets[i] - base) / parameters.at("columns.target_deviation")[t];
    const double* p = &rows.values[row * each + t];
    sum += value_nll(config.value_head, z, p[0], each > targets ? p[targets] : 0,
                     each > 2 * targets ? p[2 * targets] : 0);
  }
  return sum;
}

double labels_nll(const ModelConfig& config, const Parameters& parameters, const Steps& steps,
                  const Matrix& hidden) {
  const auto width = static_cast<std::size_t>(config.width);
  double sum = 0;
  for (std::size_t b = 0; b < steps.labels.size(); ++b) {
    const auto count =
        static_cast<std::size_t>(steps.key_lengths.empty() ? steps.length : steps.key_lengths[b]);
    Matrix mean(1, config.width, std::vector<double>(width, 0.0));
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < width; ++j)
        mean.values[j] += hidden.values[(b * static_cast<std::size_t>(steps.length) + i) * width + j] /
                          static_cast<double>(count);
    const Matrix logits = dense(mean, parameters, "classifier");
    if (steps.labels[b] >= 0)
      sum -= categorical_log_probabilities(logits.values)[static_cast<std::size_t>(steps.labels[b])];
  }
  return sum;
}

}  // namespace

double loss(const ModelConfig& config, const Parameters& parameters, const Steps& steps) {
  const Matrix hidden = hidden_rows(config, parameters, steps);
  if (config.classifies()) return labels_nll(config, parameters, steps, hidden);
  double sum = 0;
  if (!steps.targets.empty()) sum += tokens_nll(config, parameters, steps, hidden);
  if (!steps.value_targets.empty()) sum += steps.value_weight * values_nll(config, parameters, steps, hidden);
  return sum;
}

}  // namespace linnet::reference
