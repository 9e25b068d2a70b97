#include <algorithm>

#include "attention/softmax/tiles.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/softmax/backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/softmax/tile-inl.h"
// clang-format on

// With the log-sum-exp of every query's scores known, P = exp(S − lse), dP = dO Vᵀ, dS = P ∘ (dP − D) with
// D = rowsum(dO ∘ O); then dV = Pᵀ dO, dK = dSᵀ Q, dQ = dS K: five products a tile of 96 keys and a panel of
// 48 queries. P and dS lie as the forward pass's, [key][query].

HWY_BEFORE_NAMESPACE();
namespace linnet::softmax::HWY_NAMESPACE {

/// A chunk of queries and a tile of keys. Widths are the head's sizes rounded up to whole vectors.
struct Pairs {
  std::int64_t head_dim, value_dim, head_width, value_width;
  float* query;             ///< [chunk][head_width], scaled
  float* grad_out;          ///< [chunk][value_width]
  float* query_columns;     ///< panels of [head_dim][48], scaled
  float* grad_out_columns;  ///< panels of [value_dim][48]
  float* log_sum;           ///< [chunk]
  float* correction;        ///< [chunk], D
  float* grad_query;        ///< [chunk][head_width], without the scale
  float* keys;              ///< [kKeyTile][head_width]
  float* values;            ///< [kKeyTile][value_width]
  float* grad_keys;         ///< [kKeyTile][head_width]
  float* grad_values;       ///< [kKeyTile][value_width]
  float* probabilities;     ///< [kKeyTile][48]
  float* grad_scores;       ///< [kKeyTile][48]
};

/// P from the scores and dS from dP, in place.
HWY_INLINE void Probabilities(const Pairs& pairs, std::int64_t panel, std::int64_t vectors, std::int64_t keys,
                              std::int64_t first_masked, std::int64_t ahead) {
  const D d;
  for (std::int64_t v = 0; v < vectors; ++v) {
    const V log_sum = hn::Load(d, pairs.log_sum + panel * kPanel + v * kLanes);
    const V correction = hn::Load(d, pairs.correction + panel * kPanel + v * kLanes);
    for (std::int64_t j = 0; j < keys; ++j) {
      float* at = pairs.probabilities + j * kPanel + v * kLanes;
      float* grad_at = pairs.grad_scores + j * kPanel + v * kLanes;
      // At most 0 but for rounding, which counts for scores so large that their log-sum-exp has lost its
      // digits.
      const V exponent = hn::Min(hn::Zero(d), hn::Sub(hn::Load(d, at), log_sum));
      V p = kernels::HWY_NAMESPACE::FastExp(d, exponent);
      V grad = hn::Mul(p, hn::Sub(hn::Load(d, grad_at), correction));
      if (j >= first_masked) {
        const auto sees = Sees(v, ahead + j);
        p = hn::IfThenElseZero(sees, p);
        grad = hn::IfThenElseZero(sees, grad);
      }
      hn::Store(p, d, at);
      hn::Store(grad, d, grad_at);
    }
  }
}

/// The three products for a masked tile that holds infinities or NaN, pair by pair: 0 · NaN must not reach
/// what the mask keeps apart.
HWY_NOINLINE void AddPairByPair(const Pairs& pairs, std::int64_t panel, std::int64_t queries,
                                std::int64_t keys, std::int64_t ahead) {
  for (std::int64_t j = 0; j < keys; ++j) {
    for (std::int64_t i = std::max<std::int64_t>(0, ahead + j); i < queries; ++i) {
      const std::int64_t row = panel * kPanel + i;
      const float p = pairs.probabilities[j * kPanel + i], grad = pairs.grad_scores[j * kPanel + i];
      for (std::int64_t m = 0; m < pairs.value_dim; ++m)
        pairs.grad_values[j * pairs.value_width + m] += p * pairs.grad_out[row * pairs.value_width + m];
      for (std::int64_t e = 0; e < pairs.head_dim; ++e) {
        pairs.grad_keys[j * pairs.head_width + e] += grad * pairs.query[row * pairs.head_width + e];
        pairs.grad_query[row * pairs.head_width + e] += grad * pairs.keys[j * pairs.head_width + e];
      }
    }
  }
}

/// One panel of queries with one tile of keys; key r of the tile is seen from query `ahead + r` of the panel
/// on.
void AddPairs(const Pairs& pairs, std::int64_t panel, std::int64_t queries, std::int64_t keys,
              std::int64_t ahead, bool constant_keys) {
  const std::int64_t vectors = (queries + kLanes - 1) / kLanes;
  const std::int64_t first_masked = std::clamp<std::int64_t>(1 - ahead, 0, keys);
  Scores(keys, vectors, pairs.head_dim, pairs.keys, pairs.head_width,
         pairs.query_columns + panel * pairs.head_dim * kPanel, pairs.probabilities);
  Scores(keys, vectors, pairs.value_dim, pairs.values, pairs.value_width,
         pairs.grad_out_columns + panel * pairs.value_dim * kPanel, pairs.grad_scores);
  Probabilities(pairs, panel, vectors, keys, first_masked, ahead);

  const float* query = pairs.query + panel * kPanel * pairs.head_width;
  const float* grad_out = pairs.grad_out + panel * kPanel * pairs.value_width;
  if (first_masked < keys &&
      !(AllFinite(query, queries * pairs.head_width) && AllFinite(grad_out, queries * pairs.value_width) &&
        AllFinite(pairs.keys, keys * pairs.head_width))) {
    AddPairByPair(pairs, panel, queries, keys, ahead);
    return;
  }
  const std::int64_t head_vectors = pairs.head_width / kLanes, value_vectors = pairs.value_width / kLanes;
  if (!constant_keys) {
    Multiply<Layout::rows, Start::add>(keys, value_vectors, queries, pairs.probabilities, kPanel, grad_out,
                                       pairs.value_width, pairs.grad_values, pairs.value_width);
    Multiply<Layout::rows, Start::add>(keys, head_vectors, queries, pairs.grad_scores, kPanel, query,
                                       pairs.head_width, pairs.grad_keys, pairs.head_width);
  }
  Multiply<Layout::columns, Start::add>(
      queries, head_vectors, keys, pairs.grad_scores, kPanel, pairs.keys, pairs.head_width,
      pairs.grad_query + panel * kPanel * pairs.head_width, pairs.head_width);
}

/// to[i] += scale · from[i] for rows.
HWY_INLINE void AddRows(std::int64_t count, std::int64_t dim, const float* from, std::int64_t width,
                        MutableRows to, float scale) {
  for (std::int64_t i = 0; i < count; ++i) {
    float* row = to.data + i * to.stride;
    for (std::int64_t e = 0; e < dim; ++e) row[e] += scale * from[i * width + e];
  }
}

void BackwardBlockOf(const BackwardBlock& block) {
  const std::int64_t panels = (block.count + kPanel - 1) / kPanel;
  const std::int64_t chunk = panels * kPanel;
  Pairs pairs;
  pairs.head_dim = block.head_dim;
  pairs.value_dim = block.value_dim;
  pairs.head_width = round_up(block.head_dim, kLanes);
  pairs.value_width = round_up(block.value_dim, kLanes);
  float* free = block.scratch;
  const auto take = [&](std::int64_t count) {
    float* taken = free;
    free += count;
    return taken;
  };
  pairs.query = take(chunk * pairs.head_width);
  pairs.grad_out = take(chunk * pairs.value_width);
  pairs.query_columns = take(chunk * pairs.head_dim);
  pairs.grad_out_columns = take(chunk * pairs.value_dim);
  pairs.log_sum = take(chunk);
  pairs.correction = take(chunk);
  pairs.grad_query = take(chunk * pairs.head_width);
  pairs.keys = take(kKeyTile * pairs.head_width);
  pairs.values = take(kKeyTile * pairs.value_width);
  pairs.grad_keys = take(kKeyTile * pairs.head_width);
  pairs.grad_values = take(kKeyTile * pairs.value_width);
  pairs.probabilities = take(kKeyTile * kPanel);
  pairs.grad_scores = take(kKeyTile * kPanel);

  std::fill_n(pairs.grad_query, chunk * pairs.head_width, 0.0f);
  std::fill_n(pairs.log_sum, chunk, 0.0f);
  std::fill_n(pairs.correction, chunk, 0.0f);
  PackRows(block.count, pairs.head_dim, block.query, pairs.query, pairs.head_width);
  PackRows(block.count, pairs.value_dim, block.grad_out, pairs.grad_out, pairs.value_width);
  for (std::int64_t i = 0; i < block.count * pairs.head_width; ++i) pairs.query[i] *= block.scale;
  const auto queries_of = [&](std::int64_t p) { return std::min(kPanel, block.count - p * kPanel); };
  for (std::int64_t p = 0; p < panels; ++p) {
    const std::int64_t at = p * kPanel;
    TransposePanel(queries_of(p), pairs.head_dim, {pairs.query + at * pairs.head_width, pairs.head_width},
                   pairs.query_columns + at * pairs.head_dim, 1.0f);
    TransposePanel(queries_of(p), pairs.value_dim,
                   {pairs.grad_out + at * pairs.value_width, pairs.value_width},
                   pairs.grad_out_columns + at * pairs.value_dim, 1.0f);
  }
  for (std::int64_t i = 0; i < block.count; ++i) {
    pairs.log_sum[i] = block.normaliser.data[i * block.normaliser.stride];
    const float *out = block.out.data + i * block.out.stride, *grad = pairs.grad_out + i * pairs.value_width;
    float sum = 0;
    for (std::int64_t m = 0; m < pairs.value_dim; ++m) sum += out[m] * grad[m];
    pairs.correction[i] = sum;
  }

  const KeyRange& range = block.keys;
  const bool constant_keys = block.grad_key.data == nullptr;
  for (std::int64_t j = 0; j < range.count; j += kKeyTile) {
    const std::int64_t count = std::min(kKeyTile, range.count - j);
    if (block.causal && range.first + j >= block.first + block.count) break;
    PackRows(count, pairs.head_dim, {range.key.data + j * range.key.stride, range.key.stride}, pairs.keys,
             pairs.head_width);
    PackRows(count, pairs.value_dim, {range.value.data + j * range.value.stride, range.value.stride},
             pairs.values, pairs.value_width);
    if (!constant_keys) {
      std::fill_n(pairs.grad_keys, kKeyTile * pairs.head_width, 0.0f);
      std::fill_n(pairs.grad_values, kKeyTile * pairs.value_width, 0.0f);
    }
    for (std::int64_t p = 0; p < panels; ++p) {
      if (!block.causal) {
        AddPairs(pairs, p, queries_of(p), count, -kKeyTile, constant_keys);
        continue;
      }
      const std::int64_t ahead = range.first + j - (block.first + p * kPanel);
      const std::int64_t seen = std::min(count, queries_of(p) - ahead);
      if (seen > 0) AddPairs(pairs, p, queries_of(p), seen, ahead, constant_keys);
    }
    if (constant_keys) continue;
    AddRows(count, pairs.head_dim, pairs.grad_keys, pairs.head_width,
            {block.grad_key.data + j * block.grad_key.stride, block.grad_key.stride}, 1.0f);
    AddRows(count, pairs.value_dim, pairs.grad_values, pairs.value_width,
            {block.grad_value.data + j * block.grad_value.stride, block.grad_value.stride}, 1.0f);
  }
  AddRows(block.count, pairs.head_dim, pairs.grad_query, pairs.head_width, block.grad_query, block.scale);
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::softmax {

HWY_EXPORT(BackwardBlockOf);

void backward_block(const BackwardBlock& block) { HWY_DYNAMIC_DISPATCH(BackwardBlockOf)(block); }

// The chunk's five copies of its rows take about 1 MB, so that they stay in the second-level cache.
std::int64_t backward_chunk(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t rows = 49152 / (head_dim + value_dim);
  return std::clamp<std::int64_t>(rows / kKeyTile * kKeyTile, kKeyTile, 8 * kKeyTile);
}

std::size_t backward_scratch(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t chunk = backward_chunk(head_dim, value_dim);
  const std::int64_t head_width = head_dim + 16, value_width = value_dim + 16;
  return static_cast<std::size_t>(chunk * (3 * head_width + 2 * value_width + 2) +
                                  2 * kKeyTile * (head_width + value_width + kPanel));
}

}  // namespace linnet::softmax
#endif
