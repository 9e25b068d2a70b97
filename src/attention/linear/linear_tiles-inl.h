// What the chunked kernels of linear attention share: moving rows between the caller's tensors and padded
// tiles. Include it inside a file that is compiled by hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_LINEAR_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_LINEAR_TILES_INL_H_
#undef LINNET_ATTENTION_LINEAR_TILES_INL_H_
#else
#define LINNET_ATTENTION_LINEAR_TILES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "attention/linear/linear_kernels.h"
#include "attention/scratch.h"
#include "attention/tile_gemm-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// Rows of a chunk: short enough that the triangle within a chunk, C (F + M) FLOPs a token, stays small
/// beside the 4 F M of the state, long enough that loading and storing S once a chunk does.
constexpr std::size_t kChunk = 32;

HWY_INLINE std::size_t RoundUp(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// The rows [length, dim] of one head.
template <class T>
HWY_INLINE View<T> RowsOf(View<T> tensor, std::int64_t b, std::int64_t h) {
  return View<T>(tensor.at(b, 0, h), {tensor.extent(1), tensor.extent(3)}, {tensor.stride(1), 1});
}

HWY_INLINE void ZeroRows(float* tile, std::size_t ld, std::size_t first, std::size_t last) {
  if (first < last) std::memset(tile + first * ld, 0, (last - first) * ld * sizeof(float));
}

/// tile = φ of rows [first, first + count), then zeros up to `rows`.
HWY_INLINE void LoadFeatures(const LinearCall& call, bool query, std::int64_t head, View<const float> x,
                             std::size_t first, std::size_t count, float* tile, std::size_t ld,
                             std::size_t rows) {
  const auto begin = static_cast<std::int64_t>(first), size = static_cast<std::int64_t>(count);
  if (count > 0) {
    call.map.forward(View<float>(tile, {size, call.features}, {static_cast<std::int64_t>(ld), 1}),
                     x.slice(0, begin, begin + size),
                     {call.layer, static_cast<int>(head), call.position(query) + begin, query});
  }
  ZeroRows(tile, ld, count, rows);
}

/// to = scale · from. `stream` asks for stores past the caches and needs `to` aligned and `count` in whole
/// vectors.
HWY_INLINE void CopyRow(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::size_t count,
                        float scale = 1.0f, bool stream = false) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  const Vec32 factor = hn::Set(d, scale);
  std::size_t i = 0;
  if (stream) {
    for (; i < count; i += lanes) hn::Stream(hn::Mul(factor, hn::LoadU(d, from + i)), d, to + i);
    return;
  }
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(factor, hn::LoadU(d, from + i)), d, to + i);
  for (; i < count; ++i) to[i] = scale * from[i];
}

/// tile = rows [first, first + count) of the first `columns` of x, then zeros up to `rows`.
HWY_INLINE void LoadRows(View<const float> x, std::size_t first, std::size_t count, std::size_t columns,
                         float* tile, std::size_t ld, std::size_t rows) {
  for (std::size_t i = 0; i < count; ++i) CopyRow(tile + i * ld, x.at(first + i), columns);
  ZeroRows(tile, ld, count, rows);
}

/// sum[c] += Σ_r weight[r·weight_step] tile[r, c].
HWY_INLINE void AddWeightedRows(float* HWY_RESTRICT sum, const float* HWY_RESTRICT tile, std::size_t ld,
                                const float* HWY_RESTRICT weight, std::size_t weight_step, std::size_t rows,
                                std::size_t columns) {
  const F32 d;
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d)) {
    Vec32 part = hn::Zero(d);
    for (std::size_t r = 0; r < rows; ++r)
      part = hn::MulAdd(hn::Set(d, weight[r * weight_step]), hn::Load(d, tile + r * ld + c), part);
    hn::Store(hn::Add(hn::Load(d, sum + c), part), d, sum + c);
  }
}

/// sum[c] += Σ_r tile[r, c].
HWY_INLINE void AddRows(float* HWY_RESTRICT sum, const float* HWY_RESTRICT tile, std::size_t ld,
                        std::size_t rows, std::size_t columns) {
  const F32 d;
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d)) {
    Vec32 part = hn::Zero(d);
    for (std::size_t r = 0; r < rows; ++r) part = hn::Add(part, hn::Load(d, tile + r * ld + c));
    hn::Store(hn::Add(hn::Load(d, sum + c), part), d, sum + c);
  }
}

/// Fetches rows that the next chunk reads: a head's rows lie far apart, where the hardware does not look
/// ahead.
HWY_INLINE void PrefetchRows(View<const float> x, std::size_t first, std::size_t count) {
  const auto length = static_cast<std::size_t>(x.extent(0));
  const auto columns = static_cast<std::size_t>(x.extent(1));
  for (std::size_t r = first; r < std::min(first + count, length); ++r) {
    const float* row = x.at(r);
    for (std::size_t c = 0; c < columns; c += 16) hwy::Prefetch(row + c);
  }
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
