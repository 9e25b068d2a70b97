#include "study/approximation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "attention/feature_maps/reference_features.h"
#include "attention/reference_rows.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/parallel.h"

namespace linnet {
namespace {

const std::array<std::string, 4> softmax_maps = {"favor-trig", "favor-sincos", "favor", "favor-hyperbolic"};

/// Throws Error for numbers that are not finite.
void check_numbers(const HeadRows& head) {
  for (const std::vector<double>* numbers : {&head.q, &head.k, &head.v})
    for (const double number : *numbers)
      if (!std::isfinite(number))
        fail("approximate", "expected finite queries, keys and values, got {}", number);
}

std::int64_t seen_by(const HeadRows& head, std::int64_t i) { return head.causal ? i + 1 : head.length; }

/// q_i·k_j/√E of the keys that query i sees.
void logits_of(const HeadRows& head, std::int64_t i, std::vector<double>& logits) {
  const double scale = 1 / std::sqrt(static_cast<double>(head.head_dim));
  logits.resize(static_cast<std::size_t>(seen_by(head, i)));
  for (std::size_t j = 0; j < logits.size(); ++j)
    logits[j] = scale * dot(&head.q[static_cast<std::size_t>(i * head.head_dim)],
                            &head.k[j * static_cast<std::size_t>(head.head_dim)], head.head_dim);
}

double largest_logit(Context& context, const HeadRows& head) {
  std::vector<double> tops(static_cast<std::size_t>(head.length));
  parallel_for(context, head.length, [&](std::int64_t i) {
    std::vector<double> logits;
    logits_of(head, i, logits);
    tops[static_cast<std::size_t>(i)] = *std::ranges::max_element(logits);
  });
  return *std::ranges::max_element(tops);
}

/// Becomes exp(logit − shift), and divided by their sum where `normalised`.
void weights_of(std::vector<double>& logits, double shift, bool normalised) {
  double sum = 0;
  for (double& logit : logits) sum += logit = std::exp(logit - shift);
  if (!normalised) return;
  for (double& weight : logits) weight /= sum;
}

/// Sums over draws of the squared differences from what is estimated and from the mean.
struct Squares {
  double exact = 0, of_mean = 0, variance = 0;

  /// One number, of which `estimates` has one a draw.
  void add(double wanted, const double* estimates, std::int64_t draws, std::int64_t stride) {
    double mean = 0, spread = 0;
    for (std::int64_t t = 0; t < draws; ++t) mean += estimates[t * stride];
    mean /= static_cast<double>(draws);
    for (std::int64_t t = 0; t < draws; ++t) {
      const double difference = estimates[t * stride] - mean;
      spread += difference * difference;
    }
    exact += wanted * wanted;
    of_mean += (mean - wanted) * (mean - wanted);
    variance += spread / static_cast<double>(draws - 1);
  }

  void add(const Squares& other) {
    exact += other.exact;
    of_mean += other.of_mean;
    variance += other.variance;
  }

  EstimateError error(std::int64_t draws) const {
    const double count = static_cast<double>(draws), bias = of_mean - variance / count;
    return {std::sqrt((of_mean + variance * (count - 1) / count) / exact),
            std::sqrt((bias < 0 ? 0 : bias) / exact), std::sqrt(variance / exact)};
  }
};

struct RowResult {
  Squares weights, attention, output;
  double predicted = 0;
  std::int64_t non_positive = 0;
};

/// Features of all rows under one draw: those of the keys transposed, so that a row of weights is a sum of
/// rows.
struct DrawnFeatures {
  DrawnFeatures(const HeadRows& head, const FeatureMap& map)
      : count(map.features(head.head_dim)),
        query(static_cast<std::size_t>(head.length * count)),
        key(query.size()),
        query_scale(static_cast<std::size_t>(head.length)),
        key_scale(query_scale.size()) {
    std::vector<double> rows(query.size());
    reference_features(map, query.data(), query_scale.data(), head.q.data(), head.length, head.head_dim, {});
    reference_features(map, rows.data(), key_scale.data(), head.k.data(), head.length, head.head_dim, {});
    for (std::int64_t j = 0; j < head.length; ++j)
      for (std::int64_t f = 0; f < count; ++f)
        key[static_cast<std::size_t>(f * head.length + j)] = rows[static_cast<std::size_t>(j * count + f)];
  }

  /// φ(q_i)·φ(k_j) e^−shift for the first `seen` keys.
  void weights(double* to, std::int64_t i, std::int64_t seen, double shift) const {
    std::fill_n(to, seen, 0.0);
    const std::int64_t length = static_cast<std::int64_t>(key_scale.size());
    for (std::int64_t f = 0; f < count; ++f) {
      const double factor = query[static_cast<std::size_t>(i * count + f)];
      const double* row = key.data() + f * length;
      for (std::int64_t j = 0; j < seen; ++j) to[j] += factor * row[j];
    }
    for (std::int64_t j = 0; j < seen; ++j)
      to[j] *=
          std::exp(query_scale[static_cast<std::size_t>(i)] + key_scale[static_cast<std::size_t>(j)] - shift);
  }

  /// Of the features of one draw.
  static double bytes(const HeadRows& head, std::int64_t features) {
    return 2.0 * sizeof(double) * static_cast<double>(head.length) * static_cast<double>(features + 1);
  }

  std::int64_t count;
  std::vector<double> query, key;  // [length, count], [count, length]
  std::vector<double> query_scale, key_scale;
};

/// Query i against all draws.
RowResult measure_row(const HeadRows& head, const std::string& map, std::int64_t features,
                      const std::vector<DrawnFeatures>& drawn, std::int64_t i, double shift) {
  const std::int64_t seen = seen_by(head, i), draws = std::ssize(drawn), width = head.value_dim;
  std::vector<double> exact, softmax, estimate(static_cast<std::size_t>(draws * seen)),
      outputs(static_cast<std::size_t>(draws * width)), output(static_cast<std::size_t>(width));
  logits_of(head, i, exact);
  softmax = exact;
  weights_of(exact, shift, false);
  weights_of(softmax, *std::ranges::max_element(softmax), true);
  for (std::int64_t t = 0; t < draws; ++t)
    drawn[static_cast<std::size_t>(t)].weights(&estimate[static_cast<std::size_t>(t * seen)], i, seen, shift);

  RowResult result;
  const auto each_key = [&](Squares& squares, const std::vector<double>& wanted) {
    for (std::int64_t j = 0; j < seen; ++j)
      squares.add(wanted[static_cast<std::size_t>(j)], estimate.data() + j, draws, seen);
  };
  each_key(result.weights, exact);
  for (std::int64_t t = 0; t < draws; ++t) {
    double* row = &estimate[static_cast<std::size_t>(t * seen)];
    double sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) sum += row[j];
    if (!(sum > 0)) ++result.non_positive;
    for (std::int64_t j = 0; j < seen; ++j) row[j] = sum > 0 ? row[j] / sum : 0;
    for (std::int64_t j = 0; j < seen; ++j)
      for (std::int64_t m = 0; m < width; ++m)
        outputs[static_cast<std::size_t>(t * width + m)] +=
            row[j] * head.v[static_cast<std::size_t>(j * width + m)];
  }
  each_key(result.attention, softmax);
  for (std::int64_t j = 0; j < seen; ++j)
    for (std::int64_t m = 0; m < width; ++m)
      output[static_cast<std::size_t>(m)] +=
          softmax[static_cast<std::size_t>(j)] * head.v[static_cast<std::size_t>(j * width + m)];
  for (std::int64_t m = 0; m < width; ++m)
    result.output.add(output[static_cast<std::size_t>(m)], outputs.data() + m, draws, width);
  for (std::int64_t j = 0; j < seen; ++j)
    result.predicted +=
        std::exp(log_mean_squared_error(map, features, &head.q[static_cast<std::size_t>(i * head.head_dim)],
                                        &head.k[static_cast<std::size_t>(j * head.head_dim)], head.head_dim) -
                 2 * shift);
  return result;
}

}  // namespace

bool estimates_softmax(const std::string& map) {
  return std::ranges::find(softmax_maps, map) != softmax_maps.end();
}

double log_mean_squared_error(const std::string& map, std::int64_t features, const double* x, const double* y,
                              std::int64_t head_dim) {
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  const double product = scale * dot(x, y, head_dim);
  const double norms = scale * (dot(x, x, head_dim) + dot(y, y, head_dim));
  const double sum = norms + 2 * product, difference = std::max(0.0, norms - 2 * product);
  const bool two = map == "favor-sincos" || map == "favor-hyperbolic";
  const double directions = static_cast<double>(features) / (two ? 2 : 1);
  // ‖x + y‖² + 2 x·y for positive features, ‖x + y‖² − 2 x·y = ‖x‖² + ‖y‖² for waves.
  const double missed = -std::expm1(-difference), spread = -std::expm1(-sum);
  if (map == "favor-sincos") return norms + std::log(missed * missed / (2 * directions));
  if (map == "favor-trig") return norms + std::log((missed * missed + 1) / (2 * directions));
  const double positive = sum + 2 * product + std::log(spread / directions);
  if (map == "favor") return positive;
  if (map == "favor-hyperbolic") return positive + std::log(spread / 2);
  fail<UsageError>("approximate", "expected one of {}, got '{}'", fmt::join(softmax_maps, ", "), map);
}

RandomFeatureError random_feature_error(Context& context, const HeadRows& head, const std::string& map,
                                        const RandomFeatureOptions& options, std::int64_t draws) {
  if (!estimates_softmax(map))
    fail<UsageError>("approximate", "expected one of {}, got '{}'", fmt::join(softmax_maps, ", "), map);
  if (draws < 2) fail<UsageError>("approximate", "expected at least 2 draws, got {}", draws);
  check_numbers(head);
  if (std::ranges::all_of(head.v, [](double number) { return number == 0; }))
    fail("approximate", "expected values that are not all 0, got no other");
  const std::int64_t features = random_feature_map(map, head.head_dim, options)->features(head.head_dim);
  require_memory("the random features", static_cast<double>(draws) * DrawnFeatures::bytes(head, features));
  std::vector<std::unique_ptr<DrawnFeatures>> made(static_cast<std::size_t>(draws));
  parallel_for(context, draws, [&](std::int64_t t) {
    RandomFeatureOptions drawn = options;
    drawn.draw += static_cast<std::uint64_t>(t);
    made[static_cast<std::size_t>(t)] =
        std::make_unique<DrawnFeatures>(head, *random_feature_map(map, head.head_dim, drawn));
  });
  std::vector<DrawnFeatures> drawn;
  for (auto& features : made) drawn.push_back(std::move(*features));

  const double shift = largest_logit(context, head);
  std::vector<RowResult> rows(static_cast<std::size_t>(head.length));
  parallel_for(context, head.length, [&](std::int64_t i) {
    rows[static_cast<std::size_t>(i)] = measure_row(head, map, features, drawn, i, shift);
  });
  RowResult total;
  for (const RowResult& row : rows) {
    total.weights.add(row.weights);
    total.attention.add(row.attention);
    total.output.add(row.output);
    total.predicted += row.predicted;
    total.non_positive += row.non_positive;
  }
  return {total.weights.error(draws), total.attention.error(draws), total.output.error(draws),
          std::sqrt(total.predicted / total.weights.exact),
          static_cast<double>(total.non_positive) / static_cast<double>(draws * head.length)};
}

HeadNorms head_norms(Context& context, const HeadRows& head) {
  check_numbers(head);
  HeadNorms result;
  const double count = static_cast<double>(head.length);
  result.largest_logit = largest_logit(context, head);
  std::vector<double> logits;
  for (std::int64_t i = 0; i < head.length; ++i) {
    const auto norm = [&](const std::vector<double>& rows) {
      const double* row = &rows[static_cast<std::size_t>(i * head.head_dim)];
      return std::sqrt(dot(row, row, head.head_dim));
    };
    result.query += norm(head.q) / count;
    result.key += norm(head.k) / count;
    logits_of(head, i, logits);
    weights_of(logits, *std::ranges::max_element(logits), true);
    double entropy = 0;
    for (const double weight : logits)
      if (weight > 0) entropy -= weight * std::log(weight);
    result.effective_keys += std::exp(entropy) / count;
  }
  return result;
}

std::vector<double> attention_matrix(Context& context, const HeadRows& head) {
  check_numbers(head);
  std::vector<double> matrix(static_cast<std::size_t>(head.length * head.length));
  parallel_for(context, head.length, [&](std::int64_t i) {
    std::vector<double> row;
    logits_of(head, i, row);
    weights_of(row, *std::ranges::max_element(row), true);
    std::ranges::copy(row, matrix.begin() + i * head.length);
  });
  return matrix;
}

std::vector<double> singular_values(std::vector<double> matrix, std::int64_t size) {
  const auto row = [&](std::int64_t i) { return &matrix[static_cast<std::size_t>(i * size)]; };
  double all = 0;
  for (const double number : matrix) all += number * number;
  // Rows are made orthogonal two by two; those that have vanished beside the rest are left alone.
  constexpr double small = 1e-12;
  constexpr int most_sweeps = 40;
  bool turned = all > 0;
  for (int sweep = 0; sweep < most_sweeps && turned; ++sweep) {
    turned = false;
    for (std::int64_t a = 0; a + 1 < size; ++a) {
      for (std::int64_t b = a + 1; b < size; ++b) {
        double *x = row(a), *y = row(b);
        const double xx = dot(x, x, size), yy = dot(y, y, size), xy = dot(x, y, size);
        if (std::abs(xy) <= small * std::sqrt(xx * yy) || std::min(xx, yy) <= small * small * all) continue;
        turned = true;
        const double zeta = (yy - xx) / (2 * xy);
        const double t = std::copysign(1 / (std::abs(zeta) + std::sqrt(1 + zeta * zeta)), zeta);
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        for (std::int64_t i = 0; i < size; ++i) {
          const double old = x[i];
          x[i] = c * old - s * y[i];
          y[i] = s * old + c * y[i];
        }
      }
    }
  }
  std::vector<double> values(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i)
    values[static_cast<std::size_t>(i)] = std::sqrt(dot(row(i), row(i), size));
  std::ranges::sort(values, std::greater<>());
  return values;
}

double rank_error(const std::vector<double>& singular_values, std::int64_t rank) {
  double beyond = 0, all = 0;
  for (std::size_t i = singular_values.size(); i-- > 0;) {
    all += singular_values[i] * singular_values[i];
    if (static_cast<std::int64_t>(i) >= rank) beyond = all;
  }
  return all > 0 ? std::sqrt(beyond / all) : 0;
}

}  // namespace linnet
