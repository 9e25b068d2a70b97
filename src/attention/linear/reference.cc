#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/arguments.h"
#include "attention/feature_maps/reference_features.h"
#include "attention/linear/linear_attention.h"
#include "attention/linear/linear_kernels.h"

namespace linnet {
namespace {

constexpr const char* kOperation = "linear attention reference";

/// One head in dense double precision, with its features and the weights γ^(i−j) φ(q_i)·φ(k_j) of the keys
/// that i sees, 0 for the others. Log-scaled maps have their scales, those of the keys less the largest that
/// i sees, in the factor of γ; the queries' own ones cancel where the sum is divided.
///
/// An initial state joins the keys as F more of them at position −1: key f has the unit vector e_f for its
/// features, row f of S for its value, and counts z_f times in the denominator, where a key counts once.
struct ReferenceHead {
  ReferenceHead(const AttentionOptions& options, const AttentionSizes& sizes, const ReferenceInputs& inputs,
                const LinearReferenceStates& states, std::int64_t b, std::int64_t h)
      : map(*options.linear.feature_map),
        features(checked_features(kOperation, map, sizes.head_dim)),
        held(states.initial.rank() != 0 ? features : 0),
        keys(sizes.keys + held),
        query_context{options.layer, static_cast<int>(h), states.position, true},
        key_context{options.layer, static_cast<int>(h), queries_are_keys(inputs.mask) ? states.position : 0,
                    false},
        q(rows(inputs.query, b, h)),
        k(rows(inputs.key, b, h)),
        v(rows(inputs.value, b, h)),
        count(keys, 1.0),
        phi_q(sizes.queries * features),
        phi_k(keys * features),
        key_scale(keys),
        weight(sizes.queries * keys),
        fading(sizes.queries * keys, 1.0),
        seen(sizes.queries * keys),
        denominator(sizes.queries, 1.0) {
    const bool scaled = map.traits().log_scaled;
    const bool divides = options.linear.normalise == Normalise::sum;
    const double log_decay = inputs.decay.rank() == 0 ? 0 : std::log(inputs.decay(h));
    const auto scale_of = [&](std::int64_t j, double distance) {
      return key_scale[j] + distance * log_decay;
    };
    std::vector<double> query_scale(sizes.queries);
    reference_features(map, phi_q.data(), query_scale.data(), q.data(), sizes.queries, sizes.head_dim,
                       query_context);
    reference_features(map, phi_k.data(), key_scale.data(), k.data(), sizes.keys, sizes.head_dim,
                       key_context);
    for (std::int64_t f = 0; f < held; ++f) {
      const double* sums = states.initial.at(b) + (h * features + f) * sizes.value_dim;
      v.insert(v.end(), sums, sums + sizes.value_dim);
      count[sizes.keys + f] = states.initial(b, sizes.heads * features * sizes.value_dim + h * features + f);
      phi_k[(sizes.keys + f) * features + f] = 1;
      if (scaled) key_scale[sizes.keys + f] = states.initial_scale(b, h);
    }
    for (std::int64_t i = 0; i < sizes.queries; ++i) {
      const std::vector<std::uint8_t> row = seen_keys(inputs.mask, b, i, sizes.keys);
      std::copy(row.begin(), row.end(), seen.begin() + i * keys);
      const bool continues = held > 0 && key_scale.back() != -std::numeric_limits<double>::infinity() &&
                             segment_of(inputs.mask, b, i, sizes.keys).begin == 0;
      std::fill_n(seen.begin() + i * keys + sizes.keys, held, continues);
      const bool sees = std::count(seen.begin() + i * keys, seen.begin() + (i + 1) * keys, 1) > 0;
      double highest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t j = 0; j < keys; ++j)
        if (seen[i * keys + j] != 0) highest = std::max(highest, scale_of(j, double(i - position(j))));
      const double scale = divides ? -highest : query_scale[i];
      for (std::int64_t j = 0; j < keys; ++j) {
        if (seen[i * keys + j] == 0) continue;
        double dot = 0;
        for (std::int64_t f = 0; f < features; ++f) dot += phi_q[i * features + f] * phi_k[j * features + f];
        if (inputs.decay.rank() != 0)
          fading[i * keys + j] = std::pow(inputs.decay(h), double(i - position(j)));
        if (scaled) fading[i * keys + j] = std::exp(scale_of(j, double(i - position(j))) + scale);
        weight[i * keys + j] = dot * fading[i * keys + j];
        sum += weight[i * keys + j] * count[j];
      }
      if (!divides || !sees) continue;
      const double total = scaled ? sum : sum + options.linear.epsilon, least = least_denominator(scaled);
      const bool zero = total <= least && (scaled || total >= -least);
      denominator[i] = zero ? std::numeric_limits<double>::infinity() : total;
    }
    leave(sizes, inputs, b, h);
  }

  /// What the keys weigh in the final state: γ^(n−1−j), or γ^(n−1−j) e^(s_j − M).
  void leave(const AttentionSizes& sizes, const ReferenceInputs& inputs, std::int64_t b, std::int64_t h) {
    const std::int64_t visible = visible_keys(inputs.mask, b, sizes.keys);
    const std::int64_t begin =
        sizes.keys > 0 ? segment_of(inputs.mask, b, sizes.keys - 1, sizes.keys).begin : 0;
    const double log_decay = inputs.decay.rank() == 0 ? 0 : std::log(inputs.decay(h));
    left.assign(keys, 0.0);
    distance.assign(keys, 0.0);
    for (std::int64_t j = 0; j < keys; ++j) {
      if (j < sizes.keys ? j < begin || j >= visible : begin > 0) continue;
      left[j] = 1;
      distance[j] = double(visible - 1 - position(j));
      final_scale = std::max(final_scale, key_scale[j] + distance[j] * log_decay);
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      if (left[j] == 0) continue;
      if (inputs.decay.rank() != 0) left[j] = std::pow(inputs.decay(h), distance[j]);
      if (map.traits().log_scaled) left[j] = std::exp(key_scale[j] + distance[j] * log_decay - final_scale);
    }
  }

  std::int64_t position(std::int64_t j) const { return j < keys - held ? j : -1; }

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
  std::int64_t held;  // keys that stand for the initial state
  std::int64_t keys;  // S and those
  TileContext query_context, key_context;
  std::vector<double> q, k, v;
  std::vector<double> count;  // [keys], how often each counts in the denominator
  std::vector<double> phi_q, phi_k, key_scale;
  std::vector<double> weight;          // [L, keys]
  std::vector<double> fading;          // [L, keys], γ^(i−j)
  std::vector<std::uint8_t> seen;      // [L, keys]
  std::vector<double> denominator;     // [L]
  std::vector<double> left, distance;  // [keys]: weight in the final state, and how long ago
  double final_scale = -std::numeric_limits<double>::infinity();
};

AttentionSizes check(View<const double> out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_reference(kOperation, out, inputs);
  check_decay(kOperation, inputs.decay, inputs.mask, sizes.heads);
  return sizes;
}

}  // namespace

void linear_reference_forward(const AttentionOptions& options, View<double> out,
                              const ReferenceInputs& inputs, const LinearReferenceStates& states,
                              View<double> final, View<double> final_scale) {
  const AttentionSizes sizes = check(out, inputs);
  const std::int64_t width = sizes.value_dim;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const ReferenceHead head(options, sizes, inputs, states, b, h);
      for (std::int64_t i = 0; i < sizes.queries; ++i) {
        for (std::int64_t m = 0; m < width; ++m) {
          double sum = 0;
          for (std::int64_t j = 0; j < head.keys; ++j)
            sum += head.weight[i * head.keys + j] * head.v[j * width + m];
          out(b, i, h, m) = sum / head.denominator[i];
        }
      }
      if (final.rank() == 0) continue;
      double* sums = final.at(b) + h * head.features * width;
      double* z = final.at(b) + sizes.heads * head.features * width + h * head.features;
      std::fill_n(sums, head.features * width, 0.0);
      std::fill_n(z, head.features, 0.0);
      for (std::int64_t j = 0; j < head.keys; ++j) {
        for (std::int64_t f = 0; f < head.features; ++f) {
          const double feature = head.left[j] * head.phi_k[j * head.features + f];
          for (std::int64_t m = 0; m < width; ++m) sums[f * width + m] += feature * head.v[j * width + m];
          z[f] += feature * head.count[j];
        }
      }
      if (final_scale.rank() != 0) final_scale(b, h) = head.final_scale;
    }
  }
}

void linear_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                               View<const double> grad_out, const ReferenceInputs& inputs,
                               const LinearReferenceStates& states, View<double> grad_initial,
                               View<const double> grad_final) {
  const AttentionSizes sizes = check(grad_out, inputs);
  check_reference_gradients(kOperation, sizes, gradients, inputs);
  if (gradients.decay.rank() != 0) std::fill_n(gradients.decay.data(), sizes.heads, 0.0);
  const std::int64_t width = sizes.value_dim;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t h = 0; h < sizes.heads; ++h) {
      const ReferenceHead head(options, sizes, inputs, states, b, h);
      const std::int64_t features = head.features, keys = head.keys;
      std::vector<double> d_phi_q(head.phi_q.size()), d_phi_k(head.phi_k.size()), d_value(head.v.size()),
          d_count(head.count.size());
      for (std::int64_t i = 0; i < sizes.queries; ++i) {
        const double* g = grad_out.at(b, i, h);
        const double* weight = head.weight.data() + i * keys;
        // With w_j = φ(q)·φ(k_j) and o = Σ w_j v_j / d: do/dw_j = (v_j − o) / d, without o where nothing is
        // divided.
        double g_out = 0;
        if (options.linear.normalise == Normalise::sum) {
          for (std::int64_t j = 0; j < keys; ++j)
            for (std::int64_t m = 0; m < width; ++m) g_out += g[m] * weight[j] * head.v[j * width + m];
          g_out /= head.denominator[i];
        }
        for (std::int64_t j = 0; j < keys; ++j) {
          if (head.seen[i * keys + j] == 0) continue;
          double d_weight = -g_out * head.count[j];
          for (std::int64_t m = 0; m < width; ++m) {
            d_weight += g[m] * head.v[j * width + m];
            d_value[j * width + m] += weight[j] / head.denominator[i] * g[m];
          }
          d_weight /= head.denominator[i];
          d_count[j] -= weight[j] / head.denominator[i] * g_out;
          if (gradients.decay.rank() != 0)
            gradients.decay(h) += d_weight * weight[j] * double(i - head.position(j)) / inputs.decay(h);
          d_weight *= head.fading[i * keys + j];
          for (std::int64_t f = 0; f < features; ++f) {
            d_phi_q[i * features + f] += d_weight * head.phi_k[j * features + f];
            d_phi_k[j * features + f] += d_weight * head.phi_q[i * features + f];
          }
        }
      }
      for (std::int64_t j = 0; grad_final.rank() != 0 && j < keys; ++j) {
        const double* d_sums = grad_final.at(b) + h * features * width;
        const double* d_z = grad_final.at(b) + sizes.heads * features * width + h * features;
        double d_left = 0;
        for (std::int64_t f = 0; f < features; ++f) {
          const double feature = head.phi_k[j * features + f];
          double d_feature = d_z[f] * head.count[j];
          d_count[j] += head.left[j] * feature * d_z[f];
          for (std::int64_t m = 0; m < width; ++m) {
            d_feature += d_sums[f * width + m] * head.v[j * width + m];
            d_value[j * width + m] += head.left[j] * feature * d_sums[f * width + m];
          }
          d_phi_k[j * features + f] += head.left[j] * d_feature;
          d_left += feature * d_feature;
        }
        if (gradients.decay.rank() != 0)
          gradients.decay(h) += d_left * head.left[j] * head.distance[j] / inputs.decay(h);
      }
      if (grad_initial.rank() != 0) {
        const std::int64_t first = sizes.keys;
        std::copy_n(d_value.begin() + first * width, features * width,
                    grad_initial.at(b) + h * features * width);
        std::copy_n(d_count.begin() + first, features,
                    grad_initial.at(b) + sizes.heads * features * width + h * features);
      }
      std::vector<double> d_query(head.q.size()), d_key(head.k.size());
      reference_features_backward(head.map, d_query.data(), d_phi_q.data(), head.q.data(), sizes.queries,
                                  sizes.head_dim, head.query_context);
      reference_features_backward(head.map, d_key.data(), d_phi_k.data(), head.k.data(), sizes.keys,
                                  sizes.head_dim, head.key_context);
      ReferenceHead::write(gradients.query, b, h, d_query);
      ReferenceHead::write(gradients.key, b, h, d_key);
      ReferenceHead::write(gradients.value, b, h, d_value);
    }
  }
}

}  // namespace linnet
