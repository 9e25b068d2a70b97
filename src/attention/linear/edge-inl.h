// The edges of a mask in linear attention: pairs of a few queries and keys, of which some see each other.
// Include it inside a file that is compiled by hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_LINEAR_EDGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_LINEAR_EDGE_INL_H_
#undef LINNET_ATTENTION_LINEAR_EDGE_INL_H_
#else
#define LINNET_ATTENTION_LINEAR_EDGE_INL_H_
#endif

#include <bit>

#include "attention/linear/log_scales-inl.h"
#include "attention/linear/sweep_plan.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

constexpr std::size_t kEdge = kTileRows;

/// Weights [query, key] of the pairs of one tile, 0 where a query does not see a key; rows kEdge apart.
class EdgeWeights {
 public:
  /// `ahead` fetches while products run.
  EdgeWeights(const EdgeTile& tile, std::size_t queries, std::size_t keys, float* weights, Ahead& ahead)
      : tile_(tile), queries_(queries), keys_(keys), weights_(weights), ahead_(&ahead) {}

  /// weights = a aᵀ of the queries' rows [queries, depth] and the keys' transposed ones [depth, kEdge].
  HWY_NOINLINE void multiply(const float* a, std::size_t lda, const float* keys_transposed,
                             std::size_t depth) const {
    const F32 d;
    const std::size_t lanes = hn::Lanes(d);
    for (std::size_t row = 0; row < queries_; row += kRowBlock) {
      const auto [first, last] = keys_of(row);
      const std::size_t begin = first / lanes * lanes, end = round_up(last, lanes);
      if (first < last)
        for_each_panel(
            linnet::HWY_NAMESPACE::Multiply<Left::plain>{weights_ + row * kEdge + begin, kEdge, a + row * lda,
                                                         lda, keys_transposed + begin, kEdge, kRowBlock,
                                                         depth, ahead_},
            end - begin);
      for (std::size_t i = row; i < row + kRowBlock; ++i) {
        const std::uint32_t seen = i < queries_ ? tile_.seen[i] : 0;
        for (std::size_t j = 0; j < kEdge; j += lanes) {
          float* at = weights_ + i * kEdge + j;
          const bool computed = first < last && begin <= j && j < end;
          hn::Store(computed ? hn::IfThenElseZero(bits(seen, j), hn::Load(d, at)) : hn::Zero(d), d, at);
        }
      }
    }
  }

  /// weights *= e^(query + key), where the map is log-scaled.
  HWY_NOINLINE void scale(LogScales& scales) const {
    const F32 d;
    scales.settle();
    for (std::size_t i = 0; i < queries_; ++i) {
      for (std::size_t j = 0; j < keys_; j += hn::Lanes(d)) {
        float* at = weights_ + i * kEdge + j;
        hn::Store(hn::IfThenElseZero(bits(tile_.seen[i], j), hn::Mul(hn::Load(d, at), scales.pair(i, j))), d,
                  at);
      }
    }
  }

  /// Σ_j weights[i, j].
  float sum(std::size_t i) const {
    const F32 d;
    Vec32 sum = hn::Zero(d);
    for (std::size_t j = 0; j < kEdge; j += hn::Lanes(d))
      sum = hn::Add(sum, hn::Load(d, weights_ + i * kEdge + j));
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }

  /// result [queries, columns] += weights · x, x [keys, columns].
  HWY_NOINLINE void add_to_queries(float* result, std::size_t ldr, const float* x, std::size_t ldx,
                                   std::size_t columns) const {
    if (!all_finite(x, ldx, keys_, columns)) return add_pairs<false>(result, ldr, x, ldx, columns);
    for (std::size_t row = 0; row < queries_; row += kRowBlock) {
      const auto [first, last] = keys_of(row);
      if (first < last)
        for_each_panel(
            linnet::HWY_NAMESPACE::Multiply<Left::plain, Into::add>{
                result + row * ldr, ldr, weights_ + row * kEdge + first, kEdge, x + first * ldx, ldx,
                kRowBlock, last - first, ahead_},
            columns);
    }
  }

  /// result [keys, columns] += weightsᵀ · x, x [queries, columns].
  HWY_NOINLINE void add_to_keys(float* result, std::size_t ldr, const float* x, std::size_t ldx,
                                std::size_t columns) const {
    if (!all_finite(x, ldx, queries_, columns)) return add_pairs<true>(result, ldr, x, ldx, columns);
    for (std::size_t row = 0; row < keys_; row += kRowBlock) {
      const auto [first, last] = queries_of(row);
      if (first < last)
        for_each_panel(
            linnet::HWY_NAMESPACE::Multiply<Left::transposed, Into::add>{
                result + row * ldr, ldr, weights_ + first * kEdge + row, kEdge, x + first * ldx, ldx,
                kRowBlock, last - first, ahead_},
            columns);
    }
  }

 private:
  struct Range {
    std::size_t first = 0, last = 0;
  };

  static hn::Mask<F32> bits(std::uint32_t word, std::size_t first) {
    const F32 d;
    const std::uint32_t bits = word >> first;
    const std::uint8_t bytes[8] = {static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(bits >> 8)};
    return hn::LoadMaskBits(d, bytes);
  }

  /// The keys from the first to the last one that any of the queries of a block sees.
  Range keys_of(std::size_t row) const {
    std::uint32_t any = 0;
    for (std::size_t i = row; i < std::min(row + kRowBlock, queries_); ++i) any |= tile_.seen[i];
    if (any == 0) return {};
    return {static_cast<std::size_t>(std::countr_zero(any)),
            static_cast<std::size_t>(32 - std::countl_zero(any))};
  }

  /// The queries from the first to the last one that sees any of the keys of a block.
  Range queries_of(std::size_t row) const {
    const std::uint32_t block = ((1u << kRowBlock) - 1) << row;
    Range range;
    for (std::size_t i = 0; i < queries_; ++i) {
      if ((tile_.seen[i] & block) == 0) continue;
      if (range.last == 0) range.first = i;
      range.last = i + 1;
    }
    return range;
  }

  /// 0 · NaN must not reach the rows that do not see it: then every pair is added for itself.
  template <bool kToKeys>
  HWY_NOINLINE void add_pairs(float* result, std::size_t ldr, const float* x, std::size_t ldx,
                              std::size_t columns) const {
    for (std::size_t i = 0; i < queries_; ++i) {
      for (std::size_t j = 0; j < keys_; ++j) {
        if ((tile_.seen[i] >> j & 1) == 0) continue;
        const std::size_t to = kToKeys ? j : i, from = kToKeys ? i : j;
        for (std::size_t c = 0; c < columns; ++c)
          result[to * ldr + c] += weights_[i * kEdge + j] * x[from * ldx + c];
      }
    }
  }

  const EdgeTile& tile_;
  std::size_t queries_, keys_;
  float* weights_;
  Ahead* ahead_;
};

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
