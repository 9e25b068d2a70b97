#include <algorithm>
#include <array>
#include <limits>

#include "attention/softmax/tiles.h"
#include "base/workspace.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/softmax/forward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/softmax/sight-inl.h"
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
  float* keys;    ///< [kKeyTile][head_dim]
  float* values;  ///< [kKeyTile][value_rows]
};

/// Sums over the groups of tiles that lie behind, where a block sees more than one group: a plain f32 sum
/// over a million keys would drift. Panels as those of `Walk`, relative to `maximum`; each sum has what its
/// additions rounded off beside it (Kahan 1965).
struct Groups {
  float *out = nullptr, *out_rest = nullptr;
  float *sum = nullptr, *sum_rest = nullptr;
  float* maximum = nullptr;
  bool open[kMaxQueries / kPanel] = {};  ///< whether a panel has met a tile of the group at work
  bool any[kMaxQueries / kPanel] = {};   ///< whether a panel has sums here
};

/// Turns the scores of N vectors of queries, from vector v on, into exp(score − maximum) with the new
/// maximum, 0 where a query does not see a key that an earlier one of them does, brings the sums up to date
/// and leaves in `decay` what the earlier outputs have to be multiplied with.
template <int N>
HWY_INLINE void normalise(const Sight& sight, std::int64_t v, float* scores, float* maximum, float* sum,
                          float* decay) {
  const D d;
  const Span open = sight.all(v, N);
  // The keys that some queries of vector v + n see: those before the open ones, and those behind them.
  const auto for_keys = [&](int n, std::int64_t begin, std::int64_t end, const auto& body) HWY_ATTR {
    for (std::int64_t j = begin; j < std::min(end, sight.last(v + n)); ++j)
      body(scores + j * kPanel + n * kLanes, sight.lanes(v + n, j));
  };
  const auto for_before = [&](int n, const auto& body)
                              HWY_ATTR { for_keys(n, sight.first(v + n), open.begin, body); };
  const auto for_behind = [&](int n, const auto& body)
                              HWY_ATTR { for_keys(n, open.end, sight.last(v + n), body); };
  V top[N];
  for (int n = 0; n < N; ++n) top[n] = hn::Load(d, maximum + n * kLanes);
  for (std::int64_t j = open.begin; j < open.end; ++j) {
    for (int n = 0; n < N; ++n) top[n] = hn::Max(top[n], hn::Load(d, scores + j * kPanel + n * kLanes));
  }
  for (int n = 0; n < N; ++n) {
    const auto raise = [&](const float* at, auto lanes) HWY_ATTR {
      top[n] = hn::IfThenElse(lanes, hn::Max(top[n], hn::Load(d, at)), top[n]);
    };
    for_before(n, raise);
    for_behind(n, raise);
  }
  V total[N];
  for (int n = 0; n < N; ++n) {
    // Where the maximum stays the factor is exactly 1: it is multiplied in tile after tile, and a maximum of
    // −∞ stays where nothing was seen yet.
    const V old = hn::Load(d, maximum + n * kLanes);
    const V ratio = kernels::HWY_NAMESPACE::fast_exp(d, hn::Sub(old, top[n]));
    const V factor = hn::IfThenElse(hn::Eq(old, top[n]), hn::Set(d, 1.0f), ratio);
    hn::Store(factor, d, decay + n * kLanes);
    hn::Store(top[n], d, maximum + n * kLanes);
    total[n] = hn::Mul(factor, hn::Load(d, sum + n * kLanes));
  }
  // In the order of the keys, and 0 for what a query does not see: its sum depends on no other query.
  const auto add = [&](int n) HWY_ATTR {
    return [&, n](float* at, auto lanes) HWY_ATTR {
      const V p = hn::IfThenElseZero(lanes, exp_not_positive(hn::Sub(hn::Load(d, at), top[n])));
      total[n] = hn::Add(total[n], p);
      hn::Store(p, d, at);
    };
  };
  for (int n = 0; n < N; ++n) for_before(n, add(n));
  for (std::int64_t j = open.begin; j < open.end; ++j) {
    for (int n = 0; n < N; ++n) {
      float* at = scores + j * kPanel + n * kLanes;
      const V p = exp_not_positive(hn::Sub(hn::Load(d, at), top[n]));
      total[n] = hn::Add(total[n], p);
      hn::Store(p, d, at);
    }
  }
  for (int n = 0; n < N; ++n) {
    for_behind(n, add(n));
    hn::Store(total[n], d, sum + n * kLanes);
    for (std::int64_t j = sight.first(v); j < sight.first(v + n); ++j)
      hn::Store(hn::Zero(d), d, scores + j * kPanel + n * kLanes);
  }
}

/// Oᵀ = decay · Oᵀ + Vᵀ Pᵀ for N vectors of queries, each over the keys that it sees.
template <int N>
HWY_INLINE void add_weighted_values(const Walk& walk, const Sight& sight, std::int64_t v, float* out,
                                    Ahead& ahead) {
  constexpr int R = kRowsOf<N>;
  std::size_t first[N], depth[N];
  for (int n = 0; n < N; ++n) {
    first[n] = static_cast<std::size_t>(sight.first(v + n));
    depth[n] = static_cast<std::size_t>(sight.last(v + n));
  }
  // The weights are 0 from the first vector's first key on.
  if (first[N - 1] > depth[0]) std::fill_n(first, N, first[0]);
  for (std::int64_t m = 0; m < walk.value_dim; m += R) {
    multiply_tile<R, N, Left::transposed, Start::rescale>(
        first, depth, walk.values + m, walk.value_rows, walk.scores + v * kLanes, kPanel,
        out + m * kPanel + v * kLanes, kPanel, walk.decay + v * kLanes, &ahead);
  }
}

/// Adds the values of the keys that are seen, but not by every query, one by one to the queries that see
/// them: 0 · NaN must not reach the others.
HWY_NOINLINE void add_masked_values(const Walk& walk, const Sight& sight, float* out) {
  const D d;
  const Span open = sight.all(0, sight.vectors);
  for (std::int64_t v = 0; v < sight.vectors; ++v) {
    for (std::int64_t j = sight.first(v); j < sight.last(v); ++j) {
      if (open.begin <= j && j < open.end) continue;
      const V p = hn::Load(d, walk.scores + j * kPanel + v * kLanes);
      for (std::int64_t m = 0; m < walk.value_dim; ++m) {
        float* at = out + m * kPanel + v * kLanes;
        const V old = hn::Load(d, at);
        const V value = hn::Set(d, walk.values[j * walk.value_rows + m]);
        hn::Store(hn::IfThenElse(sight.lanes(v, j), hn::MulAdd(value, p, old), old), d, at);
      }
    }
  }
}

/// At least how often `attend` fetches ahead.
HWY_INLINE std::size_t fetches_of(const Walk& walk, const Sight& sight) {
  constexpr auto steps = static_cast<std::int64_t>(Ahead::kSteps);
  const Span some = sight.any();
  const std::int64_t keys = some.end - some.begin;
  return static_cast<std::size_t>(std::max<std::int64_t>(
      1, keys / kBlockRows * (walk.head_dim / steps) + walk.value_dim / kBlockRows * (keys / steps)));
}

/// One panel of queries takes in the tile's keys.
void attend(const Walk& walk, std::int64_t panel, const Sight& sight, FiniteRows& finite_values,
            Ahead& ahead) {
  float* out = walk.out + panel * walk.value_rows * kPanel;
  float* maximum = walk.maximum + panel * kPanel;
  float* sum = walk.sum + panel * kPanel;
  scores(sight, walk.head_dim, walk.keys, walk.head_dim, walk.query + panel * walk.head_dim * kPanel,
         walk.scores, &ahead);
  for_groups(sight.vectors, [&](auto group, std::int64_t v) HWY_ATTR {
    const std::int64_t first = v * kLanes;
    normalise<decltype(group)::value>(sight, v, walk.scores + first, maximum + first, sum + first,
                                      walk.decay + first);
  });
  const auto add_values = [&](const Sight& safe) HWY_ATTR {
    for_groups(sight.vectors, [&](auto group, std::int64_t v) HWY_ATTR {
      add_weighted_values<decltype(group)::value>(walk, safe, v, out, ahead);
    });
  };
  const Span some = sight.any(), open = sight.all(0, sight.vectors);
  if (finite_values.has({some.begin, std::min(open.begin, some.end)}) &&
      finite_values.has({open.end, some.end})) {
    add_values(sight);
    return;
  }
  Sight safe = sight;
  safe.narrow_to(open);
  add_values(safe);
  add_masked_values(walk, sight, out);
}

/// sum = fade · sum + term, with what was rounded off. An infinity leaves no rest.
HWY_INLINE void collect(float* HWY_RESTRICT sum, float* HWY_RESTRICT rest, V term, V fade) {
  const D d;
  const V old = hn::Mul(fade, hn::Load(d, sum));
  const V wanted = hn::NegMulAdd(fade, hn::Load(d, rest), term);
  const V next = hn::Add(old, wanted);
  const V off = hn::Sub(hn::Sub(next, old), wanted);
  hn::Store(hn::IfThenElseZero(hn::Eq(off, off), off), d, rest);
  hn::Store(next, d, sum);
}

/// Ends a group for a panel: its sums go to those of the groups behind, and begin anew from zero.
HWY_NOINLINE void end_group(const Walk& walk, Groups& groups, std::int64_t panel) {
  if (!groups.open[panel]) return;
  const D d;
  for (std::int64_t i = panel * kPanel; i < (panel + 1) * kPanel; i += kLanes) {
    const V before = hn::Load(d, groups.maximum + i), now = hn::Load(d, walk.maximum + i);
    const V ratio = kernels::HWY_NAMESPACE::fast_exp(d, hn::Sub(before, now));
    const V fade = hn::IfThenElse(hn::Eq(before, now), hn::Set(d, 1.0f), ratio);
    hn::Store(now, d, groups.maximum + i);
    collect(groups.sum + i, groups.sum_rest + i, hn::Load(d, walk.sum + i), fade);
    hn::Store(hn::Zero(d), d, walk.sum + i);
    const std::int64_t first = panel * (walk.value_rows - 1) * kPanel + i;
    for (std::int64_t at = first; at < first + walk.value_dim * kPanel; at += kPanel) {
      collect(groups.out + at, groups.out_rest + at, hn::Load(d, walk.out + at), fade);
      hn::Store(hn::Zero(d), d, walk.out + at);
    }
  }
  groups.open[panel] = false;
  groups.any[panel] = true;
}

/// The keys of a range that some query of a block sees, from a whole tile on.
HWY_INLINE Span tiles_of(const KeyRange& range, const Visible& visible, std::int64_t queries) {
  if (range.count == 0) return {0, 0};
  return {visible.interval[0].begin / kKeyTile * kKeyTile,
          std::min(range.count, visible.interval[queries - 1].end)};
}

/// Whether a group ends between the first and the last of these keys.
HWY_INLINE bool ends_group(const Span& keys) {
  return keys.begin < keys.end && keys.begin / kKeyGroup != (keys.end - 1) / kKeyGroup;
}

void forward_block_of(Context& own, const ForwardBlock& block) {
  const std::int64_t panels = (block.count + kPanel - 1) / kPanel;
  Walk walk;
  walk.head_dim = block.head_dim;
  walk.value_dim = block.value_dim;
  walk.value_rows = round_up(block.value_dim, kPanelRowMultiple);
  Workspace workspace(own);
  const auto take = [&](std::int64_t count) { return workspace.take(static_cast<std::size_t>(count)); };
  walk.query = take(panels * kPanel * walk.head_dim);
  walk.out = take((panels * walk.value_rows + kLanes) * kPanel);
  walk.maximum = take(panels * kPanel);
  walk.sum = take(panels * kPanel);
  walk.scores = take((kKeyTile + kRowSlack) * kPanel);
  walk.decay = take(kPanel);
  walk.keys = take((kKeyTile + kRowSlack) * walk.head_dim);
  walk.values = take(kKeyTile * walk.value_rows);
  float* room = take(panel_room(walk.head_dim));

  std::fill_n(walk.out, panels * kPanel * walk.value_rows, 0.0f);
  std::fill_n(walk.maximum, panels * kPanel, -std::numeric_limits<float>::infinity());
  std::fill_n(walk.sum, panels * kPanel, 0.0f);
  const Span cached = tiles_of(block.cached, block.sees_cached, block.count);
  const Span fresh = tiles_of(block.fresh, block.sees_fresh, block.count);
  Groups groups;
  if (ends_group(cached) || ends_group(fresh)) {
    const auto zeros = [&](std::int64_t count) {
      return workspace.take_zeroed(static_cast<std::size_t>(count));
    };
    groups.out = zeros((panels * walk.value_rows + kLanes) * kPanel);
    groups.out_rest = zeros(panels * kPanel * walk.value_rows);
    groups.sum = zeros(panels * kPanel);
    groups.sum_rest = zeros(panels * kPanel);
    groups.maximum = take(panels * kPanel);
    std::fill_n(groups.maximum, panels * kPanel, -std::numeric_limits<float>::infinity());
  }
  const auto queries_of = [&](std::int64_t p) { return std::min(kPanel, block.count - p * kPanel); };
  bool read[kMaxQueries / kPanel] = {};
  const auto read_queries = [&](std::int64_t p) HWY_ATTR {
    read_panel(queries_of(p), walk.head_dim, block.query.from(p * kPanel),
               walk.query + p * kPanel * walk.head_dim, block.scale, room);
    read[p] = true;
  };
  Sight sight;
  Ahead ahead;
  HWY_ALIGN std::uint8_t seen[kKeyTile * kPanel];
  const auto walk_over = [&](const KeyRange& range, const Visible& visible, const Span& all) HWY_ATTR {
    std::int64_t first = 0;
    bool met[kMaxQueries / kPanel] = {};  // whether a panel has met a tile of this range
    for (std::int64_t j = all.begin; j < all.end; j += kKeyTile) {
      const std::int64_t keys = std::min(all.end - j, kKeyTile);
      // The keys of a state belong to the first group of the call's: where a group ends does not depend on
      // the panels beside it.
      for (std::int64_t p = 0; j % kKeyGroup == 0 && p < panels; ++p)
        if (met[p]) end_group(walk, groups, p);
      // The panels that see some of the tile's keys, if no boolean mask hides them.
      while (first < panels && visible.interval[first * kPanel + queries_of(first) - 1].end <= j) ++first;
      std::int64_t last = first;
      while (last < panels && visible.interval[last * kPanel].begin < j + keys) ++last;
      bool packed = false;
      FiniteRows finite_values(walk.values, keys, walk.value_rows);
      const std::int64_t next = j + keys, rows_ahead = std::min(all.end - next, kKeyTile);
      for (std::int64_t p = first; p < last; ++p) {
        if (!look(visible, p * kPanel, queries_of(p), j, keys, seen, sight)) continue;
        if (!read[p]) read_queries(p);
        if (!packed) {
          pack_rows(walk.keys, walk.head_dim, range.key.from(j), keys, walk.head_dim);
          pack_rows(walk.values, walk.value_rows, range.value.from(j), keys, walk.value_rows);
          packed = true;
        }
        // The rows of the next tile and of the next panel are asked for while the products run.
        const Mask::Interval part = share_of(rows_ahead, p - first, last - first);
        const Mask::Interval share = {next + part.begin, next + part.end};
        ahead.start(fetches_of(walk, sight));
        fetch_apart(ahead, range.key, share);
        fetch_apart(ahead, range.value, share);
        if (p + 1 < panels && !read[p + 1])
          fetch_apart(ahead, block.query, {(p + 1) * kPanel, (p + 1) * kPanel + queries_of(p + 1)});
        if (&range == &block.fresh && visible.interval[p * kPanel + queries_of(p) - 1].end <= j + keys)
          fetch_to_come(ahead, block.to_come, p, panels);
        attend(walk, p, sight, finite_values, ahead);
        groups.open[p] = met[p] = true;
      }
    }
  };
  walk_over(block.cached, block.sees_cached, cached);
  walk_over(block.fresh, block.sees_fresh, fresh);

  const D d;
  for (std::int64_t p = 0; p < panels; ++p) {
    const bool grouped = groups.any[p];
    if (grouped) end_group(walk, groups, p);
    const float* out = (grouped ? groups.out : walk.out) + p * kPanel * walk.value_rows;
    for (std::int64_t i = 0; i < kPanel; i += kLanes) {
      float* sum = (grouped ? groups.sum : walk.sum) + p * kPanel + i;
      float* maximum = walk.maximum + p * kPanel + i;
      const V total = hn::Load(d, sum);
      // A query that saw no key has the sum 0 and gives zeros.
      const V inverse = hn::IfThenZeroElse(hn::Eq(total, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), total));
      hn::Store(inverse, d, walk.decay + i);
      if (block.sum == nullptr)
        hn::Store(hn::Add(hn::Load(d, maximum), kernels::HWY_NAMESPACE::fast_log(d, total)), d, maximum);
    }
    const bool anywhere = block.places != nullptr;
    write_panel(queries_of(p), walk.value_dim, out, walk.decay,
                anywhere ? block.out : block.out.from(p * kPanel),
                anywhere ? block.places + p * kPanel : nullptr, block.stream, walk.values);
    for (std::int64_t i = 0; block.sum != nullptr && i < queries_of(p); ++i)
      block.sum[(p * kPanel + i) * block.sum_stride] = (grouped ? groups.sum : walk.sum)[p * kPanel + i];
  }
  if (block.normaliser == nullptr) return;
  for (std::int64_t i = 0; i < block.count; ++i)
    block.normaliser[i * block.normaliser_stride] = walk.maximum[i];
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::softmax {

HWY_EXPORT(forward_block_of);

void forward_block(Context& own, const ForwardBlock& block) {
  HWY_DYNAMIC_DISPATCH(forward_block_of)(own, block);
}

// Queries, outputs and one tile of keys and values stay in a second-level cache of 1 MB, or of 2 for the
// widest heads.
std::int64_t queries_in_block(std::int64_t head_dim, std::int64_t value_dim) {
  const std::int64_t dims = head_dim + value_dim;
  return dims <= 256 ? kMaxQueries : dims <= 512 ? 4 * kPanel : dims <= 2048 ? 2 * kPanel : kPanel;
}

std::array<RowsToCome, 3> first_rows(const ForwardBlock& block) {
  const KeyRange& keys = block.fresh;
  const std::int64_t first = block.sees_fresh.interval[0].begin / kKeyTile * kKeyTile;
  const std::int64_t count = std::clamp<std::int64_t>(keys.count - first, 0, kKeyTile);
  return {{{block.query, std::min(block.count, kPanel)},
           {keys.key.from(first), count},
           {keys.value.from(first), count}}};
}

std::int64_t queries_in_task(std::int64_t head_dim, std::int64_t value_dim, std::int64_t heads,
                             std::int64_t queries) {
  constexpr std::int64_t fewest_tasks = 16;
  std::int64_t size = queries_in_block(head_dim, value_dim);
  while (size > kPanel && heads * ((queries + size - 1) / size) < fewest_tasks) size /= 2;
  return size;
}

}  // namespace linnet::softmax
#endif
