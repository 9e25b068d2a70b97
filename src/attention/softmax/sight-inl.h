// What a panel of queries sees of a tile of keys, and the scores of what it sees: one source for every
// instruction set. Include it inside a file that hwy/foreach_target.h compiles.

#if defined(LINNET_ATTENTION_SOFTMAX_SIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_SOFTMAX_SIGHT_INL_H_
#undef LINNET_ATTENTION_SOFTMAX_SIGHT_INL_H_
#else
#define LINNET_ATTENTION_SOFTMAX_SIGHT_INL_H_
#endif

#include <algorithm>

#include "attention/softmax/tile-inl.h"
#include "attention/softmax/tiles.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::softmax::HWY_NAMESPACE {

/// A tile of keys as a panel of queries sees it; lanes are queries. Query i sees the keys begin[i] … end[i] −
/// 1 of the tile, and neither bound decreases with i: the vectors' own bounds are those of their outermost
/// lanes. Under a boolean mask `seen` says which of the keys between the bounds it is.
struct Sight {
  std::int64_t vectors;
  const std::uint8_t* seen;  ///< [keys][kPanel], or null
  HWY_ALIGN std::int32_t begin[kPanel];
  HWY_ALIGN std::int32_t end[kPanel];

  /// No key before the first and from the last on is seen by any query of vector v.
  HWY_INLINE std::int64_t first(std::int64_t v) const { return begin[v * kLanes]; }
  HWY_INLINE std::int64_t last(std::int64_t v) const { return end[(v + 1) * kLanes - 1]; }
  HWY_INLINE Span any() const { return {first(0), last(vectors - 1)}; }

  /// Keys that every query of `count` vectors from vector v on sees. Where there are none, an empty span that
  /// no query's interval begins behind.
  HWY_INLINE Span all(std::int64_t v, std::int64_t count) const {
    const std::int64_t from = begin[(v + count) * kLanes - 1];
    if (seen != nullptr) return {from, from};
    return {from, std::max<std::int64_t>(from, end[v * kLanes])};
  }

  /// The queries of vector v that see key j.
  HWY_INLINE hn::Mask<D> lanes(std::int64_t v, std::int64_t j) const {
    const D d;
    const hn::RebindToSigned<D> di;
    if (seen != nullptr) {
      const hn::Rebind<std::uint8_t, D> bytes;
      const auto marks = hn::PromoteTo(di, hn::LoadU(bytes, seen + j * kPanel + v * kLanes));
      return hn::RebindMask(d, hn::Gt(marks, hn::Zero(di)));
    }
    const auto key = hn::Set(di, static_cast<std::int32_t>(j));
    const auto late = hn::Gt(hn::Load(di, begin + v * kLanes), key);
    return hn::RebindMask(d, hn::AndNot(late, hn::Gt(hn::Load(di, end + v * kLanes), key)));
  }

  /// Whether query i sees key j.
  bool sees(std::int64_t i, std::int64_t j) const {
    return begin[i] <= j && j < end[i] && (seen == nullptr || seen[j * kPanel + i] != 0);
  }

  /// Only what every query sees.
  HWY_INLINE void narrow_to(Span open) {
    seen = nullptr;
    std::fill_n(begin, kPanel, static_cast<std::int32_t>(open.begin));
    std::fill_n(end, kPanel, static_cast<std::int32_t>(open.end));
  }
};

/// Looks from `queries` queries of a block, its query `query` and those behind, to `keys` keys from key `key`
/// on. False where nothing is seen. Lanes behind the last query see what it sees. `tile` is room for
/// `Sight::seen`.
HWY_INLINE bool look(const Visible& visible, std::int64_t query, std::int64_t queries, std::int64_t key,
                     std::int64_t keys, std::uint8_t* tile, Sight& sight) {
  const Mask::Interval* own = visible.interval + query;
  if (own[0].begin >= key + keys || own[queries - 1].end <= key) return false;
  sight.vectors = (queries + kLanes - 1) / kLanes;
  sight.seen = nullptr;
  if (visible.boolean != nullptr) {
    const Seen seen = fill_seen(tile, visible, query, queries, key, keys);
    if (seen == Seen::none) return false;
    if (seen == Seen::some) sight.seen = tile;
  }
  if (own[queries - 1].begin <= key && own[0].end >= key + keys) {
    std::fill_n(sight.begin, kPanel, 0);
    std::fill_n(sight.end, kPanel, static_cast<std::int32_t>(keys));
    return true;
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    sight.begin[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(own[i].begin - key, 0, keys));
    sight.end[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(own[i].end - key, 0, keys));
  }
  std::fill(sight.begin + queries, sight.begin + kPanel, sight.begin[queries - 1]);
  std::fill(sight.end + queries, sight.end + kPanel, sight.end[queries - 1]);
  const Span some = sight.any();
  return some.begin < some.end;
}

/// scores[j][i] = Σ_e rows[j][e] columns[e][i] for what is seen, in slices of e that stay in the first-level
/// cache. The order of the sum is the same wherever it is called, so that the backward pass meets the forward
/// pass's scores bit for bit.
HWY_INLINE void scores(const Sight& sight, std::int64_t dim, const float* rows, std::int64_t step,
                       const float* columns, float* scores, Ahead* ahead = nullptr) {
  constexpr std::int64_t slice = 128;
  const Span some = sight.any();
  std::int64_t begin = some.begin / kBlockRows * kBlockRows;
  while (begin < some.end) {
    // A run of rows for the vectors that see some key of each kBlockRows of them: from v to w.
    std::int64_t v = 0, w = sight.vectors, end = some.end;
    while (v < w && sight.last(v) <= begin) ++v;
    while (v < w && sight.first(w - 1) >= begin + kBlockRows) --w;
    if (w < sight.vectors) end = std::min(end, sight.first(w) / kBlockRows * kBlockRows);
    if (v < w) end = std::min(end, round_up(sight.last(v), kBlockRows));
    for (std::int64_t e = 0; e < dim && v < w; e += slice) {
      const auto terms = [&](std::int64_t, std::int64_t) { return Span{0, std::min(dim - e, slice)}; };
      const float *a = rows + begin * step + e, *b = columns + e * kPanel + v * kLanes;
      float* c = scores + begin * kPanel + v * kLanes;
      if (e == 0) {
        multiply<Left::plain, Start::zero>(end - begin, w - v, terms, a, step, b, kPanel, c, kPanel, ahead);
      } else {
        multiply<Left::plain, Start::add>(end - begin, w - v, terms, a, step, b, kPanel, c, kPanel, ahead);
      }
    }
    begin = end;
  }
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
