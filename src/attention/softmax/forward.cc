#include <algorithm>
#include <limits>

#include "attention/softmax/tiles.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/softmax/forward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/softmax/tile-inl.h"
// clang-format on

// Everything is computed transposed, a lane a query: scores Sᵀ = K Qᵀ and outputs Oᵀ = Vᵀ Pᵀ. Keys and values
// are then only read element by element, maxima and sums over keys need no horizontal operation, and the one
// transpose is that of a block's queries and outputs.

HWY_BEFORE_NAMESPACE();
namespace linnet::softmax::HWY_NAMESPACE {

/// What a block of queries keeps while it walks over the keys; panels of 48 queries.
struct Walk {
  std::int64_t head_dim, value_dim;
  std::int64_t value_rows;  ///< value_dim rounded up
  float* query;             ///< panels of [head_dim][48], scaled
  float* out;               ///< panels of [value_rows][48], not yet divided by the sum
  float* maximum;           ///< panels of [48]
  float* sum;
  float* scores;  ///< [kKeyTile][48]
  float* decay;   ///< [48]
  float* keys;    ///< [kKeyTile][head_dim], and rows that are read in vain
  float* values;  ///< [kKeyTile][value_rows]
};

/// Turns scores of `count` keys into exp(score − maximum) with the new maximum, brings the sums up to date
/// and leaves in `decay` what the earlier outputs have to be multiplied with. Keys from `first_masked` on are
/// seen only by the queries at least `ahead` + their index in the tile behind the panel's first one.
template <int N>
HWY_INLINE void Normalise(std::int64_t v, std::int64_t count, std::int64_t first_masked, std::int64_t ahead,
                          float* scores, float* maximum, float* sum, float* decay) {
  const D d;
  V top[N];
  for (int n = 0; n < N; ++n) top[n] = hn::Load(d, maximum + n * kLanes);
  for (std::int64_t j = 0; j < first_masked; ++j) {
    for (int n = 0; n < N; ++n) top[n] = hn::Max(top[n], hn::Load(d, scores + j * kPanel + n * kLanes));
  }
  for (std::int64_t j = first_masked; j < count; ++j) {
    for (int n = 0; n < N; ++n) {
      const V score = hn::Load(d, scores + j * kPanel + n * kLanes);
      top[n] = hn::IfThenElse(Sees(v + n, ahead + j), hn::Max(top[n], score), top[n]);
    }
  }
  V total[N];
  for (int n = 0; n < N; ++n) {
    const V factor = kernels::HWY_NAMESPACE::FastExp(d, hn::Sub(hn::Load(d, maximum + n * kLanes), top[n]));
    hn::Store(factor, d, decay + n * kLanes);
    hn::Store(top[n], d, maximum + n * kLanes);
    total[n] = hn::Mul(factor, hn::Load(d, sum + n * kLanes));
  }
  for (std::int64_t j = 0; j < first_masked; ++j) {
    for (int n = 0; n < N; ++n) {
      float* at = scores + j * kPanel + n * kLanes;
      const V p = kernels::HWY_NAMESPACE::FastExp(d, hn::Sub(hn::Load(d, at), top[n]));
      total[n] = hn::Add(total[n], p);
      hn::Store(p, d, at);
    }
  }
  for (std::int64_t j = first_masked; j < count; ++j) {
    for (int n = 0; n < N; ++n) {
      float* at = scores + j * kPanel + n * kLanes;
      const V p = hn::IfThenElseZero(Sees(v + n, ahead + j),
                                     kernels::HWY_NAMESPACE::FastExp(d, hn::Sub(hn::Load(d, at), top[n])));
      total[n] = hn::Add(total[n], p);
      hn::Store(p, d, at);
    }
  }
  for (int n = 0; n < N; ++n) hn::Store(total[n], d, sum + n * kLanes);
}

/// Adds the values of masked keys one by one to the queries that see them: 0 · NaN must not reach the others.
HWY_NOINLINE void AddMaskedValues(const Walk& walk, std::int64_t v, std::int64_t vectors, std::int64_t begin,
                                  std::int64_t end, std::int64_t ahead, const float* values, float* out) {
  const D d;
  for (std::int64_t j = begin; j < end; ++j) {
    for (std::int64_t n = v; n < vectors; ++n) {
      const auto sees = Sees(n, ahead + j);
      const V p = hn::Load(d, walk.scores + j * kPanel + n * kLanes);
      for (std::int64_t m = 0; m < walk.value_dim; ++m) {
        float* at = out + m * kPanel + n * kLanes;
        const V old = hn::Load(d, at);
        const V value = hn::Set(d, values[j * walk.value_rows + m]);
        hn::Store(hn::IfThenElse(sees, hn::MulAdd(value, p, old), old), d, at);
      }
    }
  }
}

/// Vectors v … `vectors` of panel `panel` see keys `begin` … `end` of the tile, the key `begin + r` only from
/// query `ahead + r` of the panel on.
void Attend(const Walk& walk, std::int64_t panel, std::int64_t v, std::int64_t vectors, std::int64_t begin,
            std::int64_t end, std::int64_t ahead) {
  const std::int64_t count = end - begin;
  const std::int64_t first_masked = std::clamp<std::int64_t>(v * kLanes + 1 - ahead, 0, count);
  const std::int64_t column = v * kLanes;
  const float* values = walk.values + begin * walk.value_rows;
  float* out = walk.out + panel * walk.value_rows * kPanel;
  Scores(count, vectors - v, walk.head_dim, walk.keys + begin * walk.head_dim, walk.head_dim,
         walk.query + panel * walk.head_dim * kPanel + column, walk.scores + column);
  float* maximum = walk.maximum + panel * kPanel;
  float* sum = walk.sum + panel * kPanel;
  ForGroups(vectors - v, [&](auto group, std::int64_t at) HWY_ATTR {
    const std::int64_t first = column + at * kLanes;
    Normalise<decltype(group)::value>(v + at, count, first_masked, ahead, walk.scores + first,
                                      maximum + first, sum + first, walk.decay + first);
  });
  std::int64_t depth = count;
  if (first_masked < count &&
      !AllFinite(values + first_masked * walk.value_rows, (count - first_masked) * walk.value_rows)) {
    depth = first_masked;
  }
  Multiply<Layout::columns, Start::rescale>(walk.value_dim, vectors - v, depth, values, walk.value_rows,
                                            walk.scores + column, kPanel, out + column, kPanel,
                                            walk.decay + column);
  if (depth < count) AddMaskedValues(walk, v, vectors, depth, count, ahead, values, out);
}

/// All that a panel's queries see of keys `begin` … `end` of a causal call, which lie in the tile from
/// `begin` on. Near the diagonal the tile is cut where another vector of queries begins to see, so that what
/// nobody sees is hardly computed.
void AttendCausal(const Walk& walk, std::int64_t panel, std::int64_t vectors, std::int64_t first_query,
                  std::int64_t queries, std::int64_t begin, std::int64_t end) {
  end = std::min(end, first_query + queries);
  std::int64_t at = begin;
  for (std::int64_t v = 0; v < vectors; ++v) {
    const std::int64_t stop = std::min(end, first_query + (v + 1) * kLanes);
    if (stop <= at) continue;
    Attend(walk, panel, v, vectors, at - begin, stop - begin, at - first_query);
    at = stop;
  }
}

void ForwardBlockOf(const ForwardBlock& block) {
  const std::int64_t panels = (block.count + kPanel - 1) / kPanel;
  Walk walk;
  walk.head_dim = block.head_dim;
  walk.value_dim = block.value_dim;
  walk.value_rows = round_up(block.value_dim, kRowMultiple);
  float* free = block.scratch;
  const auto take = [&](std::int64_t count) {
    float* taken = free;
    free += round_up(count, 16);
    return taken;
  };
  walk.query = take(panels * kPanel * walk.head_dim);
  walk.out = take(panels * kPanel * walk.value_rows);
  walk.maximum = take(panels * kPanel);
  walk.sum = take(panels * kPanel);
  walk.scores = take(kKeyTile * kPanel);
  walk.decay = take(kPanel);
  walk.keys = take((kKeyTile + kRowMultiple) * walk.head_dim);
  walk.values = take(kKeyTile * walk.value_rows);

  std::fill_n(walk.out, panels * kPanel * walk.value_rows, 0.0f);
  std::fill_n(walk.maximum, panels * kPanel, -std::numeric_limits<float>::infinity());
  std::fill_n(walk.sum, panels * kPanel, 0.0f);
  const auto queries_of = [&](std::int64_t p) { return std::min(kPanel, block.count - p * kPanel); };
  const auto vectors_of = [&](std::int64_t p) { return (queries_of(p) + kLanes - 1) / kLanes; };
  for (std::int64_t p = 0; p < panels; ++p) {
    TransposePanel(queries_of(p), walk.head_dim,
                   {block.query.data + p * kPanel * block.query.stride, block.query.stride},
                   walk.query + p * kPanel * walk.head_dim, block.scale);
  }

  for (const KeyRange* range : {&block.cached, &block.fresh}) {
    const bool causal = block.causal && range == &block.fresh;
    const std::int64_t seen = causal ? std::min(range->count, block.first + block.count) : range->count;
    for (std::int64_t j = 0; j < seen; j += kKeyTile) {
      const std::int64_t end = std::min(seen, j + kKeyTile);
      PackRows(end - j, walk.head_dim, {range->key.data + j * range->key.stride, range->key.stride},
               walk.keys, walk.head_dim);
      PackRows(end - j, walk.value_dim, {range->value.data + j * range->value.stride, range->value.stride},
               walk.values, walk.value_rows);
      for (std::int64_t p = 0; p < panels; ++p) {
        if (causal)
          AttendCausal(walk, p, vectors_of(p), block.first + p * kPanel, queries_of(p), j, end);
        else
          Attend(walk, p, 0, vectors_of(p), 0, end - j, -kKeyTile);
      }
    }
  }

  const D d;
  for (std::int64_t p = 0; p < panels; ++p) {
    float* out = walk.out + p * kPanel * walk.value_rows;
    for (std::int64_t i = 0; i < kPanel; i += kLanes) {
      float* sum = walk.sum + p * kPanel + i;
      float* maximum = walk.maximum + p * kPanel + i;
      const V total = hn::Load(d, sum);
      // A query that saw no key has the sum 0 and gives zeros.
      const V inverse = hn::IfThenZeroElse(hn::Eq(total, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), total));
      for (std::int64_t m = 0; m < walk.value_dim; ++m) {
        float* at = out + m * kPanel + i;
        hn::Store(hn::Mul(hn::Load(d, at), inverse), d, at);
      }
      hn::Store(hn::Add(hn::Load(d, maximum), kernels::HWY_NAMESPACE::FastLog(d, total)), d, maximum);
    }
    Transpose(walk.value_dim, queries_of(p), out, kPanel, block.out.data + p * kPanel * block.out.stride,
              block.out.stride, 1.0f);
  }
  if (block.normaliser.data == nullptr) return;
  for (std::int64_t i = 0; i < block.count; ++i)
    block.normaliser.data[i * block.normaliser.stride] = walk.maximum[i];
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::softmax {

HWY_EXPORT(ForwardBlockOf);

void forward_block(const ForwardBlock& block) { HWY_DYNAMIC_DISPATCH(ForwardBlockOf)(block); }

// Queries, outputs and one tile of keys and values stay in a second-level cache of 1 MB, or of 2 for the
// widest heads.
std::int64_t queries_in_block(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t dims = head_dim + value_dim;
  return dims <= 512 ? 4 * kPanel : dims <= 2048 ? 2 * kPanel : kPanel;
}

std::size_t forward_scratch(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t queries = queries_in_block(head_dim, value_dim);
  const std::int64_t value_rows = value_dim + 24;
  return static_cast<std::size_t>((queries + kKeyTile + 24) * (head_dim + value_rows) + 2 * queries +
                                  (kKeyTile + 1) * kPanel);
}

}  // namespace linnet::softmax
#endif
