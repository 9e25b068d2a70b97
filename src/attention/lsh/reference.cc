#include <algorithm>
#include <cmath>

#include "attention/lsh/hash.h"
#include "attention/lsh/lsh_attention.h"
#include "attention/reference_rows.h"
#include "attention/score_scale.h"

namespace linnet {
namespace {

constexpr const char* kOperation = "lsh attention reference";

/// Buckets and chunks of every token, quadratic: a token's place is the number of those that come before it.
class Meetings {
 public:
  Meetings(const AttentionOptions& options, const ReferenceInputs& inputs, const AttentionSizes& sizes)
      : options_(options), mask_(inputs.mask), sizes_(sizes) {
    Tensor query = Tensor::of<float>({sizes.batch, sizes.keys, sizes.heads, sizes.head_dim});
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      for (std::int64_t i = 0; i < sizes.keys; ++i)
        for (std::int64_t h = 0; h < sizes.heads; ++h)
          std::copy_n(inputs.query.at(b, i, h), sizes.head_dim, query.view<float>().at(b, i, h));
    Context context(1);
    buckets_ = lsh::hash_tokens(context, options, query.view<float>(), inputs.mask).buckets;
  }

  /// The keys that query i attends to: those that it meets in some round.
  std::vector<std::int64_t> met_by(std::int64_t b, std::int64_t i, std::int64_t h) const {
    std::vector<std::int64_t> met;
    const std::int64_t tokens = visible_keys(mask_, b, sizes_.keys);
    for (std::int64_t round = 0; round < options_.lsh.rounds; ++round) {
      const std::uint32_t* bucket =
          buckets_.data() + ((round * sizes_.batch + b) * sizes_.heads + h) * sizes_.keys;
      std::int64_t before = 0;  // tokens of smaller buckets
      for (std::int64_t j = 0; j < tokens; ++j) before += bucket[j] < bucket[i];
      std::int64_t place = before;
      std::vector<std::int64_t> peers, chunks;
      std::int64_t own = 0;
      for (std::int64_t j = 0; j < tokens; ++j) {
        if (bucket[j] != bucket[i]) continue;
        if (j == i) own = place / options_.lsh.chunk;
        peers.push_back(j);
        chunks.push_back(place++ / options_.lsh.chunk);
      }
      for (std::size_t p = 0; p < peers.size(); ++p) {
        const bool near = chunks[p] == own || chunks[p] == own - 1;
        const bool allowed = mask_.kind() == Mask::Kind::full ? peers[p] != i : peers[p] < i;
        if (near && allowed && std::ranges::find(met, peers[p]) == met.end()) met.push_back(peers[p]);
      }
    }
    if (met.empty()) met.push_back(i);
    return met;
  }

 private:
  const AttentionOptions& options_;
  const Mask& mask_;
  AttentionSizes sizes_;
  std::vector<std::uint32_t> buckets_;
};

AttentionSizes check(View<const double> out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_reference(kOperation, out, inputs);
  check_lsh_mask(kOperation, inputs.mask);
  if (sizes.queries != sizes.keys)
    fail(kOperation, "expected as many keys as queries, which are the same vectors, got {} and {}",
         sizes.keys, sizes.queries);
  return sizes;
}

/// The attention of one query: calls body(keys, weights, unit keys).
template <class Body>
void for_each_query(const AttentionOptions& options, const ReferenceInputs& inputs,
                    const AttentionSizes& sizes, const Body& body) {
  const double scale = score_scale(options.scale, sizes.head_dim);
  const Meetings meetings(options, inputs, sizes);
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t i = 0; i < visible_keys(inputs.mask, b, sizes.keys); ++i) {
      for (std::int64_t h = 0; h < sizes.heads; ++h) {
        const std::vector<std::int64_t> keys = meetings.met_by(b, i, h);
        std::vector<double> weights;
        double maximum = -INFINITY, sum = 0;
        for (const std::int64_t j : keys) {
          const double* x = inputs.query.at(b, j, h);
          const double norm = std::sqrt(dot(x, x, sizes.head_dim));
          weights.push_back(norm > 0 ? scale * dot(inputs.query.at(b, i, h), x, sizes.head_dim) / norm : 0);
          maximum = std::max(maximum, weights.back());
        }
        for (double& weight : weights) sum += weight = std::exp(weight - maximum);
        for (double& weight : weights) weight /= sum;
        body(b, i, h, keys, weights, scale);
      }
    }
  }
}

}  // namespace

void lsh_reference_forward(const AttentionOptions& options, View<double> out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check(out, inputs);
  clear(out);
  for_each_query(
      options, inputs, sizes,
      [&](std::int64_t b, std::int64_t i, std::int64_t h, const auto& keys, const auto& weights, double) {
        for (std::size_t p = 0; p < keys.size(); ++p)
          for (std::int64_t m = 0; m < sizes.value_dim; ++m)
            out(b, i, h, m) += weights[p] * inputs.value(b, keys[p], h, m);
      });
}

void lsh_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                            View<const double> grad_out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check(grad_out, inputs);
  check_reference_gradients(kOperation, sizes, gradients, inputs);
  clear(gradients.query);
  clear(gradients.key);
  clear(gradients.value);
  for_each_query(
      options, inputs, sizes,
      [&](std::int64_t b, std::int64_t i, std::int64_t h, const auto& keys, const auto& weights,
          double scale) {
        std::vector<double> grad_weights;
        double mean = 0;
        for (std::size_t p = 0; p < keys.size(); ++p) {
          grad_weights.push_back(dot(grad_out.at(b, i, h), inputs.value.at(b, keys[p], h), sizes.value_dim));
          mean += weights[p] * grad_weights[p];
        }
        const double* query = inputs.query.at(b, i, h);
        for (std::size_t p = 0; p < keys.size(); ++p) {
          const std::int64_t j = keys[p];
          for (std::int64_t m = 0; m < sizes.value_dim; ++m)
            gradients.value(b, j, h, m) += weights[p] * grad_out(b, i, h, m);
          const double grad_score = scale * weights[p] * (grad_weights[p] - mean);
          const double* x = inputs.query.at(b, j, h);
          const double norm = std::sqrt(dot(x, x, sizes.head_dim));
          if (norm == 0) continue;
          const double along = dot(query, x, sizes.head_dim) / (norm * norm);
          for (std::int64_t e = 0; e < sizes.head_dim; ++e) {
            gradients.query(b, i, h, e) += grad_score * x[e] / norm;
            gradients.query(b, j, h, e) += grad_score * (query[e] - along * x[e]) / norm;
          }
        }
      });
}

}  // namespace linnet
