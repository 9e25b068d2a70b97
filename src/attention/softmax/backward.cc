#include <algorithm>
#include <array>
#include <utility>

#include "attention/softmax/tiles.h"
#include "base/workspace.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/softmax/backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/softmax/sight-inl.h"
// clang-format on

// With the log-sum-exp of every query's scores known, P = exp(S − lse), dP = dO Vᵀ, dS = P ∘ (dP − D) with
// D = rowsum(dO ∘ O); then dV = Pᵀ dO, dK = dSᵀ Q, dQ = dS K: five products a tile of 96 keys and a panel of
// 48 queries. P and dS lie as the forward pass's, [key][query].

HWY_BEFORE_NAMESPACE();
namespace linnet::softmax::HWY_NAMESPACE {

/// A chunk of queries and a tile of keys. Widths are the head's sizes rounded up to whole vectors.
struct Pairs {
  std::int64_t head_dim, value_dim, head_width, value_width;
  float* query;                       ///< [chunk][head_width], scaled
  float* grad_out;                    ///< [chunk][value_width]
  float* query_columns;               ///< panels of [head_dim][48], scaled
  float* grad_out_columns;            ///< panels of [value_dim][48]
  float* log_sum;                     ///< [chunk]
  float* correction;                  ///< [chunk], D
  float* grad_query;                  ///< [chunk][head_width], without the scale
  float* keys;                        ///< [kKeyTile][head_width]
  float* values;                      ///< [kKeyTile][value_width]
  float* grad_keys;                   ///< [kKeyTile][head_width]
  float* grad_values;                 ///< [kKeyTile][value_width]
  float* probabilities;               ///< [kKeyTile][48]
  float* grad_scores;                 ///< [kKeyTile][48]
  bool finite[kMaxQueries / kPanel];  ///< whether a panel's queries and dO hold no infinity and no NaN

  /// Whether the sums of a panel's queries and of the tile's keys hold something, as they do once the panel
  /// has met the tile; what they hold before means nothing.
  bool query_sums[kMaxQueries / kPanel] = {};
  bool key_sums = false;
};

/// The rows of a tile that hold what is seen, so that products over kRowMultiple rows at a time end inside.
HWY_INLINE Span seen_rows(const Sight& sight) {
  const Span some = sight.any();
  return {some.begin / kRowMultiple * kRowMultiple, round_up(some.end, kRowMultiple)};
}

/// P of vectors of scores.
HWY_INLINE V probability(V score, V log_sum) {
  // At most 0 but for rounding, which counts for scores so large that their log-sum-exp has lost its digits.
  // A comparison keeps NaN, which the minimum of some instruction sets drops.
  const V zero = hn::Zero(D()), exponent = hn::Sub(score, log_sum);
  return exp_not_positive(hn::IfThenElse(hn::Gt(exponent, zero), zero, exponent));
}

/// P from the scores and dS from dP, in place, and zeros in the same rows where nothing is seen.
HWY_INLINE void probabilities(const Pairs& pairs, std::int64_t panel, const Sight& sight) {
  const D d;
  const Span rows = seen_rows(sight);
  for (std::int64_t v = 0; v < sight.vectors; ++v) {
    const V log_sum = hn::Load(d, pairs.log_sum + panel * kPanel + v * kLanes);
    const V correction = hn::Load(d, pairs.correction + panel * kPanel + v * kLanes);
    float* scores = pairs.probabilities + v * kLanes;
    float* grads = pairs.grad_scores + v * kLanes;
    const auto probability_of = [&](std::int64_t j) HWY_ATTR {
      return probability(hn::Load(d, scores + j * kPanel), log_sum);
    };
    const auto grad_score = [&](std::int64_t j, V p) HWY_ATTR {
      return hn::Mul(p, hn::Sub(hn::Load(d, grads + j * kPanel), correction));
    };
    const auto clear = [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      for (std::int64_t j = begin; j < end; ++j) {
        hn::Store(hn::Zero(d), d, scores + j * kPanel);
        hn::Store(hn::Zero(d), d, grads + j * kPanel);
      }
    };
    const auto masked = [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      for (std::int64_t j = begin; j < end; ++j) {
        const V p = probability_of(j), grad = grad_score(j, p);
        hn::Store(hn::IfThenElseZero(sight.lanes(v, j), p), d, scores + j * kPanel);
        hn::Store(hn::IfThenElseZero(sight.lanes(v, j), grad), d, grads + j * kPanel);
      }
    };
    const Span open = sight.all(v, 1);
    clear(rows.begin, sight.first(v));
    masked(sight.first(v), open.begin);
    for (std::int64_t j = open.begin; j < open.end; ++j) {
      const V p = probability_of(j), grad = grad_score(j, p);
      hn::Store(p, d, scores + j * kPanel);
      hn::Store(grad, d, grads + j * kPanel);
    }
    masked(open.end, sight.last(v));
    clear(sight.last(v), rows.end);
  }
}

/// The sums of a panel's queries = 0.
HWY_INLINE void clear_query_sums(const Pairs& pairs, std::int64_t panel) {
  std::fill_n(pairs.grad_query + panel * kPanel * pairs.head_width, kPanel * pairs.head_width, 0.0f);
}

/// The same of some of the tile's keys.
HWY_INLINE void clear_key_sums(const Pairs& pairs, Span rows) {
  const std::int64_t count = rows.end - rows.begin;
  std::fill_n(pairs.grad_keys + rows.begin * pairs.head_width, count * pairs.head_width, 0.0f);
  std::fill_n(pairs.grad_values + rows.begin * pairs.value_width, count * pairs.value_width, 0.0f);
}

/// c = A b, or c += A b where there are `sums` already, as `multiply`.
template <Left kLeft, class SpanOf>
HWY_INLINE void add_product(bool sums, std::int64_t rows, std::int64_t vectors, const SpanOf& span,
                            const float* a, const float* b, float* c, std::int64_t width, Ahead& ahead) {
  if (sums)
    multiply<kLeft, Start::add>(rows, vectors, span, a, kPanel, b, width, c, width, &ahead);
  else
    multiply<kLeft, Start::zero>(rows, vectors, span, a, kPanel, b, width, c, width, &ahead);
}

/// The three products for a masked tile that holds infinities or NaN, pair by pair: 0 · NaN must not reach
/// what the mask keeps apart.
HWY_NOINLINE void add_pair_by_pair(const Pairs& pairs, std::int64_t panel, std::int64_t queries,
                                   const Sight& sight) {
  const Span some = sight.any();
  for (std::int64_t j = some.begin; j < some.end; ++j) {
    for (std::int64_t i = 0; i < queries; ++i) {
      if (!sight.sees(i, j)) continue;
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

/// The queries, of `queries`, that see some key from row `from` of a tile to row `to`, whose intervals lie
/// between the bounds that two of these arrays hold for every row.
struct Seeing {
  std::int32_t first[kKeyTile + 1], end[kKeyTile + 1];

  HWY_INLINE Seeing(const Sight& sight, std::int64_t queries, Span rows) {
    std::int32_t before = 0, behind = 0;
    for (std::int64_t j = rows.begin; j < rows.end; ++j) {
      while (before < queries && sight.end[before] <= j) ++before;
      while (behind < queries && sight.begin[behind] <= j) ++behind;
      first[j] = before;
      end[j] = behind;
    }
  }
};

/// At least how often `add_pairs` fetches ahead, but for the few pairs at the edges of a mask.
HWY_INLINE std::size_t fetches_of(const Pairs& pairs, const Sight& sight, bool constant_keys) {
  constexpr auto steps = static_cast<std::int64_t>(Ahead::kSteps);
  const Span some = sight.any();
  const std::int64_t keys = some.end - some.begin, queries = sight.vectors * kLanes;
  const std::int64_t of_scores = (pairs.head_dim + pairs.value_dim) / steps * (keys / kBlockRows);
  const std::int64_t of_keys = 2 * (keys / kBlockRows) * (queries / steps);
  const std::int64_t of_queries = queries / kBlockRows * (keys / steps);
  return static_cast<std::size_t>(
      std::max<std::int64_t>(1, of_scores + (of_queries + (constant_keys ? 0 : of_keys)) / 2));
}

/// One panel of queries with one tile of keys.
void add_pairs(Pairs& pairs, std::int64_t panel, std::int64_t queries, const Sight& sight, bool constant_keys,
               FiniteRows& finite_keys, Ahead& ahead) {
  scores(sight, pairs.head_dim, pairs.keys, pairs.head_width,
         pairs.query_columns + panel * pairs.head_dim * kPanel, pairs.probabilities, &ahead);
  scores(sight, pairs.value_dim, pairs.values, pairs.value_width,
         pairs.grad_out_columns + panel * pairs.value_dim * kPanel, pairs.grad_scores, &ahead);
  probabilities(pairs, panel, sight);

  const float* query = pairs.query + panel * kPanel * pairs.head_width;
  const float* grad_out = pairs.grad_out + panel * kPanel * pairs.value_width;
  const Span some = sight.any(), open = sight.all(0, sight.vectors), rows = seen_rows(sight);
  const bool query_sums = std::exchange(pairs.query_sums[panel], true);
  const bool key_sums = std::exchange(pairs.key_sums, true);
  // The products multiply with zeros where some query of the panel does not see some of the rows.
  if ((rows.begin < open.begin || open.end < rows.end) && !(pairs.finite[panel] && finite_keys.has(some))) {
    if (!query_sums) clear_query_sums(pairs, panel);
    if (!key_sums) clear_key_sums(pairs, {0, kKeyTile});
    add_pair_by_pair(pairs, panel, queries, sight);
    return;
  }
  const std::int64_t head_vectors = pairs.head_width / kLanes, value_vectors = pairs.value_width / kLanes;
  if (!constant_keys) {
    const Seeing seeing(sight, queries, rows);
    const auto terms = [&](std::int64_t r, std::int64_t count) {
      return Span{seeing.first[rows.begin + r], seeing.end[rows.begin + r + count - 1]};
    };
    if (!key_sums) {
      clear_key_sums(pairs, {0, rows.begin});
      clear_key_sums(pairs, {rows.end, kKeyTile});
    }
    const std::int64_t at = rows.begin * kPanel, count = rows.end - rows.begin;
    add_product<Left::plain>(key_sums, count, value_vectors, terms, pairs.probabilities + at, grad_out,
                             pairs.grad_values + rows.begin * pairs.value_width, pairs.value_width, ahead);
    add_product<Left::plain>(key_sums, count, head_vectors, terms, pairs.grad_scores + at, query,
                             pairs.grad_keys + rows.begin * pairs.head_width, pairs.head_width, ahead);
  }
  const auto seen = [&](std::int64_t i, std::int64_t count) {
    return Span{sight.begin[i], sight.end[i + count - 1]};
  };
  add_product<Left::transposed>(query_sums, queries, head_vectors, seen, pairs.grad_scores, pairs.keys,
                                pairs.grad_query + panel * kPanel * pairs.head_width, pairs.head_width,
                                ahead);
}

/// to = scale · from for rows, or to += scale · from where there are `sums` already.
HWY_INLINE void add_rows(bool sums, std::int64_t count, std::int64_t dim, const float* from,
                         std::int64_t width, const OutputRows& to, float scale) {
  for (std::int64_t i = 0; i < count; ++i) {
    tiles::fetch_row(to, std::min(i + tiles::kRowsAhead, count - 1));
    if (!sums) {
      tiles::copy_row(to.floats() + i * to.stride, from + i * width, dim, scale);
      continue;
    }
    float* row = to.floats() + i * to.stride;
    for (std::int64_t e = 0; e < dim; ++e) row[e] += scale * from[i * width + e];
  }
}

HWY_INLINE float dot(std::int64_t count, const float* x, const float* y) {
  const D d;
  V sums = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sums = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sums);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

void backward_block_of(Context& own, const BackwardBlock& block) {
  const std::int64_t panels = (block.count + kPanel - 1) / kPanel;
  const std::int64_t chunk = panels * kPanel;
  Pairs pairs;
  pairs.head_dim = block.head_dim;
  pairs.value_dim = block.value_dim;
  pairs.head_width = round_up(block.head_dim, kLanes);
  pairs.value_width = round_up(block.value_dim, kLanes);
  Workspace workspace(own);
  const auto take = [&](std::int64_t count) { return workspace.take(static_cast<std::size_t>(count)); };
  pairs.query = take(chunk * pairs.head_width);
  pairs.grad_out = take(chunk * pairs.value_width);
  pairs.query_columns = take(chunk * pairs.head_dim);
  pairs.grad_out_columns = take(chunk * pairs.value_dim);
  pairs.log_sum = take(chunk);
  pairs.correction = take(chunk);
  pairs.grad_query = take(chunk * pairs.head_width);
  pairs.keys = take((kKeyTile + kRowSlack) * pairs.head_width);
  pairs.values = take((kKeyTile + kRowSlack) * pairs.value_width);
  pairs.grad_keys = take(kKeyTile * pairs.head_width);
  pairs.grad_values = take(kKeyTile * pairs.value_width);
  pairs.probabilities = take((kKeyTile + kRowSlack) * kPanel);
  pairs.grad_scores = take((kKeyTile + kRowSlack) * kPanel);

  float* out = take(kPanel * pairs.value_width);
  std::fill_n(pairs.log_sum, chunk, 0.0f);
  std::fill_n(pairs.correction, chunk, 0.0f);
  const auto queries_of = [&](std::int64_t p) { return std::min(kPanel, block.count - p * kPanel); };
  const auto read_queries = [&](std::int64_t p) HWY_ATTR {
    const std::int64_t at = p * kPanel, count = queries_of(p);
    float* query = pairs.query + at * pairs.head_width;
    float* grad_out = pairs.grad_out + at * pairs.value_width;
    pack_rows(query, pairs.head_width, block.query.from(at), count, pairs.head_width);
    const std::int64_t* places = block.places != nullptr ? block.places + at : nullptr;
    const auto from = [&](const InputRows& rows) { return places != nullptr ? rows : rows.from(at); };
    pack_rows(grad_out, pairs.value_width, from(block.grad_out), count, pairs.value_width, places);
    pack_rows(out, pairs.value_width, from(block.out), count, pairs.value_width, places);
    for (std::int64_t i = 0; i < count * pairs.head_width; ++i) query[i] *= block.scale;
    // Every gradient is linear in P dO: dO takes the factor of P, and D = rowsum(dO ∘ O) with it.
    for (std::int64_t i = 0; block.weight != nullptr && i < count; ++i)
      for (std::int64_t m = 0; m < pairs.value_dim; ++m)
        grad_out[i * pairs.value_width + m] *= block.weight[at + i];
    transpose_rows(count, pairs.head_dim, query, pairs.head_width, pairs.query_columns + at * pairs.head_dim);
    transpose_rows(count, pairs.value_dim, grad_out, pairs.value_width,
                   pairs.grad_out_columns + at * pairs.value_dim);
    pairs.finite[p] =
        all_finite(query, count * pairs.head_width) && all_finite(grad_out, count * pairs.value_width);
    for (std::int64_t i = 0; i < count; ++i) {
      pairs.log_sum[at + i] = block.normaliser[(at + i) * block.normaliser_stride];
      pairs.correction[at + i] =
          dot(pairs.value_dim, out + i * pairs.value_width, grad_out + i * pairs.value_width);
    }
  };

  const KeyRange& range = block.keys;
  const bool constant_keys = block.grad_key.data == nullptr;
  Sight sight;
  Ahead ahead;
  HWY_ALIGN std::uint8_t seen[kKeyTile * kPanel];
  bool read[kMaxQueries / kPanel] = {};
  bool begun[kMaxQueries / kPanel];  // whether a panel's gradient holds something
  std::fill_n(begun, panels, !block.begins_queries);
  const auto add_grad_query = [&](std::int64_t p) HWY_ATTR {
    add_rows(std::exchange(begun[p], true), queries_of(p), pairs.head_dim,
             pairs.grad_query + p * kPanel * pairs.head_width, pairs.head_width,
             block.grad_query.from(p * kPanel), block.scale);
    pairs.query_sums[p] = false;
  };
  for (std::int64_t j = 0; j < range.count; j += kKeyTile) {
    const std::int64_t count = std::min(kKeyTile, range.count - j), end = range.first + j + count;
    const bool at_end = end == range.first + range.count, closes = at_end || (j + kKeyTile) % kKeyGroup == 0;
    const std::int64_t next = j + count, rows_ahead = std::min(range.count - next, kKeyTile);
    std::int64_t first = 0;  // the panels that see some of the tile's keys, if no boolean mask hides them
    while (first < panels &&
           block.sees.interval[first * kPanel + queries_of(first) - 1].end <= range.first + j)
      ++first;
    std::int64_t last = first;
    while (last < panels && block.sees.interval[last * kPanel].begin < end) ++last;
    pairs.key_sums = false;
    FiniteRows finite_keys(pairs.keys, count, pairs.head_width);
    for (std::int64_t p = first; p < last; ++p) {
      if (!look(block.sees, p * kPanel, queries_of(p), range.first + j, count, seen, sight)) continue;
      if (!read[p]) read_queries(p);
      read[p] = true;
      if (!pairs.key_sums) {
        pack_rows(pairs.keys, pairs.head_width, range.key.from(j), count, pairs.head_width);
        pack_rows(pairs.values, pairs.value_width, range.value.from(j), count, pairs.value_width);
      }
      // What is read next is asked for while the products run: the gradients that this tile and this panel
      // add to, the rows of the next tile and of the next panel.
      const bool last_tile = at_end || block.sees.interval[p * kPanel + queries_of(p) - 1].end <= end;
      const bool done = last_tile || closes;
      const auto share = [&](std::int64_t rows) { return share_of(rows, p - first, last - first); };
      ahead.start(fetches_of(pairs, sight, constant_keys));
      if (!constant_keys) {
        fetch_apart(ahead, block.grad_key.from(j), share(count));
        fetch_apart(ahead, block.grad_value.from(j), share(count));
      }
      if (done) fetch_apart(ahead, block.grad_query, {p * kPanel, p * kPanel + queries_of(p)});
      fetch_apart(ahead, range.key.from(next), share(rows_ahead));
      fetch_apart(ahead, range.value.from(next), share(rows_ahead));
      if (p + 1 < panels && !read[p + 1]) {
        const Mask::Interval coming = {(p + 1) * kPanel, (p + 1) * kPanel + queries_of(p + 1)};
        fetch_apart(ahead, block.query, coming);
        fetch_apart(ahead, block.grad_out, block.places, coming);
        fetch_apart(ahead, block.out, block.places, coming);
      }
      if (last_tile) fetch_to_come(ahead, block.to_come, p, panels);
      add_pairs(pairs, p, queries_of(p), sight, constant_keys, finite_keys, ahead);
      if (done) add_grad_query(p);
    }
    for (std::int64_t p = 0; closes && p < panels; ++p)
      if (pairs.query_sums[p]) add_grad_query(p);
    if (constant_keys || (!pairs.key_sums && !block.begins_keys)) continue;
    if (!pairs.key_sums) clear_key_sums(pairs, {0, count});
    add_rows(!block.begins_keys, count, pairs.head_dim, pairs.grad_keys, pairs.head_width,
             block.grad_key.from(j), 1.0f);
    add_rows(!block.begins_keys, count, pairs.value_dim, pairs.grad_values, pairs.value_width,
             block.grad_value.from(j), 1.0f);
  }
  for (std::int64_t p = 0; p < panels; ++p) {
    if (begun[p]) continue;
    clear_query_sums(pairs, p);
    add_grad_query(p);
  }
}

void add_probabilities_of(Context& own, const BackwardBlock& block, double* sums) {
  const std::int64_t panels = (block.count + kPanel - 1) / kPanel, dim = block.head_dim;
  Workspace workspace(own);
  const auto take = [&](std::int64_t count) { return workspace.take(static_cast<std::size_t>(count)); };
  float* query = take(panels * kPanel * dim);
  float* log_sum = take(panels * kPanel);
  float* keys = take((kKeyTile + kRowSlack) * dim);
  float* weights = take((kKeyTile + kRowSlack) * kPanel);
  float* room = take(panel_room(dim));
  float* totals = take(kPanel);
  const auto queries_of = [&](std::int64_t p) { return std::min(kPanel, block.count - p * kPanel); };
  for (std::int64_t p = 0; p < panels; ++p)
    read_panel(queries_of(p), dim, block.query.from(p * kPanel), query + p * kPanel * dim, block.scale, room);
  std::fill_n(log_sum, panels * kPanel, 0.0f);
  for (std::int64_t i = 0; i < block.count; ++i) log_sum[i] = block.normaliser[i * block.normaliser_stride];

  const D d;
  Sight sight;
  HWY_ALIGN std::uint8_t seen[kKeyTile * kPanel];
  for (std::int64_t j = 0; j < block.keys.count; j += kKeyTile) {
    const std::int64_t count = std::min(kKeyTile, block.keys.count - j);
    bool packed = false;
    for (std::int64_t p = 0; p < panels; ++p) {
      if (!look(block.sees, p * kPanel, queries_of(p), block.keys.first + j, count, seen, sight)) continue;
      if (!packed) pack_rows(keys, dim, block.keys.key.from(j), count, dim);
      packed = true;
      scores(sight, dim, keys, dim, query + p * kPanel * dim, weights);
      for (std::int64_t v = 0; v < sight.vectors; ++v) {
        const V log = hn::Load(d, log_sum + p * kPanel + v * kLanes);
        V total = hn::Zero(d);
        for (std::int64_t t = sight.first(v); t < sight.last(v); ++t) {
          const V p_t = probability(hn::Load(d, weights + t * kPanel + v * kLanes), log);
          total = hn::Add(total, hn::IfThenElseZero(sight.lanes(v, t), p_t));
        }
        hn::Store(total, d, totals + v * kLanes);
      }
      for (std::int64_t i = 0; i < queries_of(p); ++i) sums[p * kPanel + i] += static_cast<double>(totals[i]);
    }
  }
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::softmax {

HWY_EXPORT(backward_block_of);
HWY_EXPORT(add_probabilities_of);

void backward_block(Context& own, const BackwardBlock& block) {
  HWY_DYNAMIC_DISPATCH(backward_block_of)(own, block);
}

void add_probabilities(Context& own, const BackwardBlock& block, double* sums) {
  HWY_DYNAMIC_DISPATCH(add_probabilities_of)(own, block, sums);
}

std::array<RowsToCome, 6> first_rows(const BackwardBlock& block) {
  const std::int64_t queries = std::min(block.count, kPanel), keys = std::min(block.keys.count, kKeyTile);
  return {{{block.query, queries},
           {block.grad_out, queries},
           {block.out, queries},
           {block.keys.key, keys},
           {block.keys.value, keys}}};
}

// The chunk's five copies of its rows take about 1 MB, so that they stay in the second-level cache; of the
// widest heads not even 96 rows do, and 192 share the tiles of keys that they meet.
std::int64_t backward_queries(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t dims = head_dim + value_dim;
  return std::clamp<std::int64_t>(49152 / dims / 96 * 96, dims > 1024 ? 192 : 96, kMaxQueries);
}

}  // namespace linnet::softmax
#endif
