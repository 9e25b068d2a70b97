#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/arguments.h"
#include "attention/feature_maps/elementwise_map.h"
#include "attention/linear/linear_attention.h"
#include "attention/linear/linear_kernels.h"

namespace linnet {
namespace {

/// One head in dense double precision, with its features and the weights γ^(i−j) φ(q_i)·φ(k_j) of the keys
/// that i sees, 0 for the others. Log-scaled maps have their scales, those of the keys less the largest that
/// i sees, in the factor of γ; the queries' own ones cancel where the sum is divided.
struct ReferenceHead {
  ReferenceHead(const AttentionOptions& options, const AttentionSizes& sizes, const ReferenceInputs& inputs,
                std::int64_t b, std::int64_t h)
      : map(*options.feature_map),
        features(map.features(sizes.head_dim)),
        query_context{options.layer, static_cast<int>(h), 0, true},
        key_context{options.layer, static_cast<int>(h), 0, false},
        q(rows(inputs.query, b, h)),
        k(rows(inputs.key, b, h)),
        v(rows(inputs.value, b, h)),
        phi_q(sizes.queries * features),
        phi_k(sizes.keys * features),
        weight(sizes.queries * sizes.keys),
        fading(sizes.queries * sizes.keys, 1.0),
        seen(sizes.queries * sizes.keys),
        denominator(sizes.queries, 1.0) {
    const bool scaled = dynamic_cast<const LogScaledMap*>(&map) != nullptr;
    const bool divides = options.normalise == Normalise::sum;
    std::vector<double> query_scale(sizes.queries), key_scale(sizes.keys);
    reference_features(map, phi_q.data(), query_scale.data(), q.data(), sizes.queries, sizes.head_dim,
                       query_context);
    reference_features(map, phi_k.data(), key_scale.data(), k.data(), sizes.keys, sizes.head_dim,
                       key_context);
    for (std::int64_t i = 0; i < sizes.queries; ++i) {
      const std::vector<std::uint8_t> row = seen_keys(inputs.mask, b, i, sizes.keys);
      std::copy(row.begin(), row.end(), seen.begin() + i * sizes.keys);
      const bool sees = std::ranges::count(row, 1) > 0;
      double highest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t j = 0; j < sizes.keys; ++j)
        if (row[j] != 0) highest = std::max(highest, key_scale[j]);
      const double scale = divides ? -highest : query_scale[i];
      for (std::int64_t j = 0; j < sizes.keys; ++j) {
        if (row[j] == 0) continue;
        double dot = 0;
        for (std::int64_t f = 0; f < features; ++f) dot += phi_q[i * features + f] * phi_k[j * features + f];
        if (inputs.decay.rank() != 0) fading[i * sizes.keys + j] = std::pow(inputs.decay(h), double(i - j));
        if (scaled) fading[i * sizes.keys + j] = std::exp(key_scale[j] + scale);
        weight[i * sizes.keys + j] = dot * fading[i * sizes.keys + j];
        sum += weight[i * sizes.keys + j];
      }
      if (!divides || !sees) continue;
      if (!scaled)
        denominator[i] = sum + options.epsilon;
      else
        denominator[i] = sum <= std::exp(-kMostScale) ? std::numeric_limits<double>::infinity() : sum;
    }
  }

  static std::vector<double> rows(View<const double> tensor, std::int64_t b, std::int64_t h) {
    std::vector<double> dense;
    for (std::int64_t i = 0; i < tensor.extent(1); ++i)
      dense.insert(dense.end(), tensor.at(b, i, h), tensor.at(b, i, h) + tensor.extent(3));
    return dense;
  }

  static void write(View<double> tensor, std::int64_t b, std::int64_t h, const std::vector<double>& dense) {
    const std::int64_t width = tensor.extent(3);
    for (std::int64_t i = 0; i < tensor.extent(1); ++i)
      std::copy_n(dense.begin() + i * width, width, tensor.at(b, i, h));
  }

  const FeatureMap& map;
  std::int64_t features;
  TileContext query_context, key_context;
  std::vector<double> q, k, v, phi_q, phi_k;
  std::vector<double> weight;       // [L, S]
  std::vector<double> fading;       // [L, S], γ^(i−j)
  std::vector<std::uint8_t> seen;   // [L, S]
  std::vector<double> denominator;  // [L]
};

}  // namespace

void linear_reference_forward(const AttentionOptions& options, View<double> out,
                              const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_reference("linear attention", out, inputs);
  check_decay("linear attention", inputs.decay, inputs.mask, sizes.heads);
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const ReferenceHead head(options, sizes, inputs, b, h);
      for (std::int64_t i = 0; i < sizes.queries; ++i) {
        for (std::int64_t m = 0; m < sizes.value_dim; ++m) {
          double sum = 0;
          for (std::int64_t j = 0; j < sizes.keys; ++j)
            sum += head.weight[i * sizes.keys + j] * head.v[j * sizes.value_dim + m];
          out(b, i, h, m) = sum / head.denominator[i];
        }
      }
    }
  }
}

void linear_reference_backward(const AttentionOptions& options, View<double> grad_query,
                               View<double> grad_key, View<double> grad_value, View<const double> grad_out,
                               const ReferenceInputs& inputs, View<double> grad_decay) {
  const AttentionSizes sizes = check_reference("linear attention", grad_out, inputs);
  if (grad_decay.rank() != 0) std::fill_n(grad_decay.data(), sizes.heads, 0.0);
  const std::int64_t width = sizes.value_dim;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const ReferenceHead head(options, sizes, inputs, b, h);
      const std::int64_t features = head.features;
      std::vector<double> d_phi_q(head.phi_q.size()), d_phi_k(head.phi_k.size()), d_value(head.v.size());
      for (std::int64_t i = 0; i < sizes.queries; ++i) {
        const double* g = grad_out.at(b, i, h);
        const double* weight = head.weight.data() + i * sizes.keys;
        // With w_j = φ(q)·φ(k_j) and o = Σ w_j v_j / d: do/dw_j = (v_j − o) / d, without o where nothing is
        // divided.
        double g_out = 0;
        if (options.normalise == Normalise::sum) {
          for (std::int64_t j = 0; j < sizes.keys; ++j)
            for (std::int64_t m = 0; m < width; ++m) g_out += g[m] * weight[j] * head.v[j * width + m];
          g_out /= head.denominator[i];
        }
        for (std::int64_t j = 0; j < sizes.keys; ++j) {
          if (head.seen[i * sizes.keys + j] == 0) continue;
          double d_weight = -g_out;
          for (std::int64_t m = 0; m < width; ++m) {
            d_weight += g[m] * head.v[j * width + m];
            d_value[j * width + m] += weight[j] / head.denominator[i] * g[m];
          }
          d_weight /= head.denominator[i];
          if (grad_decay.rank() != 0) grad_decay(h) += d_weight * weight[j] * double(i - j) / inputs.decay(h);
          d_weight *= head.fading[i * sizes.keys + j];
          for (std::int64_t f = 0; f < features; ++f) {
            d_phi_q[i * features + f] += d_weight * head.phi_k[j * features + f];
            d_phi_k[j * features + f] += d_weight * head.phi_q[i * features + f];
          }
        }
      }
      std::vector<double> d_query(head.q.size()), d_key(head.k.size());
      reference_features_backward(head.map, d_query.data(), d_phi_q.data(), head.q.data(), sizes.queries,
                                  sizes.head_dim, head.query_context);
      reference_features_backward(head.map, d_key.data(), d_phi_k.data(), head.k.data(), sizes.keys,
                                  sizes.head_dim, head.key_context);
      ReferenceHead::write(grad_query, b, h, d_query);
      ReferenceHead::write(grad_key, b, h, d_key);
      ReferenceHead::write(grad_value, b, h, d_value);
    }
  }
}

}  // namespace linnet
