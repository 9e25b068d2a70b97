#include "reference/layers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

namespace linnet::reference {
namespace {

double log_sigmoid(double x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }

double log_sum_exp(std::span<const double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

/// log of σ(upper) − σ(lower), by σ(a) − σ(b) = σ(a) σ(−b) (1 − e^(b − a)).
double log_between(double lower, double upper) {
  return log_sigmoid(upper) + log_sigmoid(-lower) + std::log(-std::expm1(lower - upper));
}

}  // namespace

Matrix dense(const Matrix& x, const Parameters& parameters, const std::string& name) {
  const std::vector<double>& weight = parameters.at(name + ".weight");
  const auto bias = parameters.find(name + ".bias");
  Matrix y(x.rows, static_cast<std::int64_t>(weight.size()) / x.columns);
  for (std::int64_t row = 0; row < y.rows; ++row)
    for (std::int64_t o = 0; o < y.columns; ++o) {
      double sum = bias == parameters.end() ? 0 : bias->second[static_cast<std::size_t>(o)];
      const double* w = &weight[static_cast<std::size_t>(o * x.columns)];
      for (std::int64_t i = 0; i < x.columns; ++i) sum += x(row, i) * w[i];
      y(row, o) = sum;
    }
  return y;
}

Matrix norm(const Matrix& x, const Parameters& parameters, const std::string& name) {
  const std::vector<double>& gain = parameters.at(name + ".weight");
  const auto bias = parameters.find(name + ".bias");
  const bool centred = bias != parameters.end();
  Matrix y(x.rows, x.columns);
  const double width = static_cast<double>(x.columns);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < x.columns && centred; ++i) mean += x(row, i) / width;
    for (std::int64_t i = 0; i < x.columns; ++i) variance += (x(row, i) - mean) * (x(row, i) - mean) / width;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const auto column = static_cast<std::size_t>(i);
      y(row, i) = (x(row, i) - mean) / std::sqrt(variance + 1e-5) * gain[column];
      if (centred) y(row, i) += bias->second[column];
    }
  }
  return y;
}

double activation(const std::string& kind, double x) {
  if (kind == "none") return x;
  if (kind == "relu") return std::max(x, 0.0);
  if (kind == "gelu") return x * std::erfc(-x / std::numbers::sqrt2) / 2;
  if (kind == "gelu-tanh")
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  if (kind == "swiglu") return x / (1 + std::exp(-x));
  throw std::invalid_argument("activation " + kind);
}

Matrix feed_forward(const Matrix& x, const Parameters& parameters, const std::string& name,
                    const std::string& kind) {
  Matrix hidden = dense(x, parameters, name + ".first");
  for (double& value : hidden.values) value = activation(kind, value);
  if (kind == "swiglu") {
    const Matrix gate = dense(x, parameters, name + ".gate");
    for (std::size_t i = 0; i < gate.values.size(); ++i) hidden.values[i] *= gate.values[i];
  }
  return dense(hidden, parameters, name + ".second");
}

double sinusoid(std::int64_t position, std::int64_t column, std::int64_t width) {
  const long double exponent = static_cast<long double>(column / 2 * 2) / static_cast<long double>(width);
  const long double angle = static_cast<long double>(position) * std::pow(10000.0L, -exponent);
  return static_cast<double>(column % 2 == 0 ? std::sin(angle) : std::cos(angle));
}

Matrix embedding(std::span<const std::int32_t> ids, std::int64_t length, std::int64_t width,
                 const Parameters& parameters, const std::string& name, const std::string& positions,
                 std::int64_t first) {
  const std::vector<double>& table = parameters.at(name + ".weight");
  Matrix y(static_cast<std::int64_t>(ids.size()), width);
  for (std::int64_t row = 0; row < y.rows; ++row) {
    const std::int64_t position = first + row % length;
    for (std::int64_t i = 0; i < width; ++i) {
      y(row, i) = table[static_cast<std::size_t>(ids[static_cast<std::size_t>(row)] * width + i)];
      if (positions == "learned")
        y(row, i) += parameters.at(name + ".positions")[static_cast<std::size_t>(position * width + i)];
      else if (positions == "sinusoidal")
        y(row, i) += sinusoid(position, i, width);
      else if (positions != "none" && positions != "rotary")
        throw std::invalid_argument("positions " + positions);
    }
  }
  return y;
}

Matrix rotated(Matrix qkv, std::int64_t length, std::int64_t rotated, std::int64_t head_dim) {
  for (std::int64_t row = 0; row < qkv.rows; ++row)
    for (std::int64_t head = 0; head < rotated; head += head_dim)
      for (std::int64_t j = 0; j < head_dim / 2; ++j) {
        const double cosine = sinusoid(row % length, 2 * j + 1, head_dim),
                     sine = sinusoid(row % length, 2 * j, head_dim);
        double& a = qkv(row, head + j);
        double& b = qkv(row, head + j + head_dim / 2);
        const double before = a;
        a = before * cosine - b * sine;
        b = b * cosine + before * sine;
      }
  return qkv;
}

double feature(const AttentionSettings& settings, double x) {
  const std::string& map = settings.feature_map;
  if (map == "elu") return x > 0 ? x + 1 : settings.alpha * std::expm1(x) + 1;
  if (map == "relu") return std::max(x, 0.0);
  if (map == "squared-relu") return std::max(x, 0.0) * std::max(x, 0.0);
  if (map == "exp") return std::exp(x);
  if (map == "identity") return x;
  throw std::invalid_argument("feature map " + map);
}

namespace {

/// Tokens of the entry that begins at row `begin`.
std::int64_t tokens_of(const AttentionSettings& settings, std::int64_t begin, std::int64_t length) {
  return settings.key_lengths.empty() ? length
                                      : settings.key_lengths[static_cast<std::size_t>(begin / length)];
}

/// The rows that a row sees.
std::vector<std::int64_t> seen_rows(std::int64_t row, std::int64_t length,
                                    const AttentionSettings& settings) {
  const std::int64_t begin = row / length * length, end = begin + tokens_of(settings, begin, length);
  std::vector<std::int64_t> seen;
  for (std::int64_t j = begin; j < (settings.causal ? std::min(row + 1, end) : end); ++j)
    if (std::abs(row - j) <= settings.window && (settings.family != "lsh" || j != row)) seen.push_back(j);
  if (seen.empty() && settings.family == "lsh") seen.push_back(row);
  return seen;
}

}  // namespace

Matrix pairwise_attention(const Matrix& qkv, std::int64_t length, const AttentionSettings& settings) {
  const bool shared = settings.family == "lsh";
  const bool softmax = shared || settings.family == "softmax" || settings.family == "local";
  if (!softmax && settings.family != "linear") throw std::invalid_argument("family " + settings.family);
  const std::int64_t width = qkv.columns / (shared ? 2 : 3), head_dim = width / settings.heads;
  Matrix mapped = qkv;  // queries and keys as the similarity takes them
  if (!softmax)
    for (std::int64_t row = 0; row < qkv.rows; ++row)
      for (std::int64_t i = 0; i < 2 * width; ++i) mapped(row, i) = feature(settings, qkv(row, i));
  Matrix y(qkv.rows, width);
  for (std::int64_t row = 0; row < qkv.rows; ++row) {
    const std::vector<std::int64_t> seen = seen_rows(row, length, settings);
    for (std::int64_t head = 0; head < settings.heads; ++head) {
      const std::int64_t query = head * head_dim, key = shared ? query : width + query, value = key + width;
      std::vector<double> weights;
      for (const std::int64_t j : seen) {
        double product = 0, square = 0;
        for (std::int64_t e = 0; e < head_dim; ++e) {
          product += mapped(row, query + e) * mapped(j, key + e);
          square += mapped(j, key + e) * mapped(j, key + e);
        }
        if (shared) product /= std::sqrt(square);
        if (!settings.decay.empty())
          product *= std::pow(settings.decay[static_cast<std::size_t>(head)], static_cast<double>(row - j));
        weights.push_back(product);
      }
      if (seen.empty()) continue;
      double denominator = 1;
      if (softmax) {
        for (double& similarity : weights) similarity /= std::sqrt(static_cast<double>(head_dim));
        const double normaliser = log_sum_exp(weights);
        for (double& similarity : weights) similarity = std::exp(similarity - normaliser);
      } else if (settings.normalise) {
        denominator = settings.epsilon;
        for (const double similarity : weights) denominator += similarity;
      }
      for (std::size_t n = 0; n < seen.size(); ++n)
        for (std::int64_t m = 0; m < head_dim; ++m)
          y(row, query + m) += weights[n] / denominator * qkv(seen[n], value + m);
    }
  }
  return y;
}

Matrix linformer_attention(const Matrix& qkv, std::int64_t length, const Parameters& parameters,
                           const std::string& name, const AttentionSettings& settings) {
  const std::int64_t width = qkv.columns / 3, head_dim = width / settings.heads;
  const std::string& owner = settings.projections_of.empty() ? name : settings.projections_of;
  const std::vector<double>& e = parameters.at(owner + ".key_projection");
  const auto own_f = parameters.find(owner + ".value_projection");
  const std::vector<double>& f = own_f == parameters.end() ? e : own_f->second;
  const std::int64_t longest = settings.projection_length, rank = settings.rank;
  const std::int64_t owners = static_cast<std::int64_t>(e.size()) / (rank * longest);
  Matrix y(qkv.rows, width);
  for (std::int64_t row = 0; row < qkv.rows; ++row) {
    const std::int64_t begin = row / length * length, tokens = tokens_of(settings, begin, length);
    for (std::int64_t head = 0; head < settings.heads; ++head) {
      const std::int64_t query = head * head_dim, key = width + query, value = 2 * width + query;
      const std::int64_t first = (owners == 1 ? 0 : head) * rank * longest;
      std::vector<double> scores(static_cast<std::size_t>(rank));
      for (std::int64_t r = 0; r < rank; ++r) {
        double score = 0;
        for (std::int64_t j = 0; j < tokens; ++j)
          for (std::int64_t i = 0; i < head_dim; ++i)
            score += e[static_cast<std::size_t>(first + r * longest + j)] * qkv(row, query + i) *
                     qkv(begin + j, key + i);
        scores[static_cast<std::size_t>(r)] = score / std::sqrt(static_cast<double>(head_dim));
      }
      const double normaliser = log_sum_exp(scores);
      for (std::int64_t r = 0; r < rank; ++r)
        for (std::int64_t j = 0; j < tokens; ++j)
          for (std::int64_t m = 0; m < head_dim; ++m)
            y(row, query + m) += std::exp(scores[static_cast<std::size_t>(r)] - normaliser) *
                                 f[static_cast<std::size_t>(first + r * longest + j)] *
                                 qkv(begin + j, value + m);
    }
  }
  return y;
}

Matrix self_attention(const Matrix& x, std::int64_t length, const Parameters& parameters,
                      const std::string& name, const AttentionSettings& settings) {
  AttentionSettings own = settings;
  if (const auto learned = parameters.find(name + ".decay"); learned != parameters.end()) {
    own.decay.clear();
    for (const double logit : learned->second) own.decay.push_back(1 / (1 + std::exp(-logit)));
  }
  Matrix qkv = dense(x, parameters, name + ".qkv");
  if (settings.rotary)
    qkv = rotated(std::move(qkv), length, settings.family == "lsh" ? x.columns : 2 * x.columns,
                  x.columns / settings.heads);
  const Matrix attended = settings.family == "linformer"
                              ? linformer_attention(qkv, length, parameters, name, own)
                              : pairwise_attention(qkv, length, own);
  return dense(attended, parameters, name + ".output");
}

Matrix cross_attention(const Matrix& x, std::int64_t length, const Memory& memory,
                       const Parameters& parameters, const std::string& name,
                       const AttentionSettings& settings) {
  const Matrix query = dense(x, parameters, name + ".query"),
               key_value = dense(memory.rows, parameters, name + ".key_value");
  const std::int64_t width = x.columns, head_dim = width / settings.heads;
  const bool softmax = settings.family == "softmax";
  Matrix y(x.rows, width);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const std::int64_t entry = row / length, begin = entry * memory.length;
    const std::int64_t count =
        memory.lengths.empty() ? memory.length : memory.lengths[static_cast<std::size_t>(entry)];
    for (std::int64_t head = 0; head < settings.heads; ++head) {
      std::vector<double> weights;
      double sum = softmax ? 0 : settings.epsilon;
      for (std::int64_t j = begin; j < begin + count; ++j) {
        double product = 0;
        for (std::int64_t e = head * head_dim; e < (head + 1) * head_dim; ++e)
          product += softmax ? query(row, e) * key_value(j, e)
                             : feature(settings, query(row, e)) * feature(settings, key_value(j, e));
        weights.push_back(softmax ? std::exp(product / std::sqrt(static_cast<double>(head_dim))) : product);
        sum += weights.back();
      }
      for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t e = head * head_dim; e < (head + 1) * head_dim; ++e)
          y(row, e) += weights[static_cast<std::size_t>(j)] / sum * key_value(begin + j, width + e);
    }
  }
  return dense(y, parameters, name + ".output");
}

Matrix block(const Matrix& x, std::int64_t length, const Parameters& parameters, const std::string& name,
             const BlockSettings& settings, const BlockMasks& masks, const Memory* memory) {
  const auto add = [](Matrix branch, const Matrix& stream, const std::vector<double>& mask) {
    for (std::size_t i = 0; i < branch.values.size(); ++i)
      branch.values[i] = stream.values[i] + branch.values[i] * (mask.empty() ? 1 : mask[i]);
    return branch;
  };
  const auto normed = [&](const Matrix& m, const char* which) { return norm(m, parameters, name + which); };
  const auto attend = [&](const Matrix& m) {
    return self_attention(m, length, parameters, name + ".attention", settings.attention);
  };
  const auto feed = [&](const Matrix& m) {
    return feed_forward(m, parameters, name + ".feed_forward", settings.activation);
  };
  const auto cross = [&](const Matrix& m) {
    return cross_attention(m, length, *memory, parameters, name + ".cross_attention", settings.attention);
  };
  if (settings.norm_first) {
    Matrix middle = add(attend(normed(x, ".norm1")), x, masks.attention);
    if (memory != nullptr) middle = add(cross(normed(middle, ".cross_norm")), middle, {});
    return add(feed(normed(middle, ".norm2")), middle, masks.feed_forward);
  }
  Matrix middle = normed(add(attend(x), x, masks.attention), ".norm1");
  if (memory != nullptr) middle = normed(add(cross(middle), middle, {}), ".cross_norm");
  return normed(add(feed(middle), middle, masks.feed_forward), ".norm2");
}

std::vector<double> categorical_log_probabilities(std::span<const double> logits) {
  const double normaliser = log_sum_exp(logits);
  std::vector<double> result(logits.begin(), logits.end());
  for (double& value : result) value -= normaliser;
  return result;
}

std::vector<double> logistics_log_probabilities(std::span<const double> row, std::int64_t vocabulary) {
  const std::size_t components = row.size() / 3;
  const std::vector<double> weight = categorical_log_probabilities(row.first(components));
  const double half_bin = 1 / static_cast<double>(vocabulary - 1);
  std::vector<double> result, parts(components);
  for (std::int64_t value = 0; value < vocabulary; ++value) {
    const double centre = static_cast<double>(2 * value) * half_bin - 1;
    for (std::size_t k = 0; k < components; ++k) {
      const double scale = std::exp(std::max(row[2 * components + k], -7.0));
      const double lower = (centre - half_bin - row[components + k]) / scale;
      const double upper = (centre + half_bin - row[components + k]) / scale;
      double log_probability = log_between(lower, upper);
      if (value == 0) log_probability = log_sigmoid(upper);
      if (value == vocabulary - 1) log_probability = log_sigmoid(-lower);
      parts[k] = weight[k] + log_probability;
    }
    result.push_back(log_sum_exp(parts));
  }
  return result;
}

}  // namespace linnet::reference
