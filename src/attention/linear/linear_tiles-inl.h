// What the chunked kernels of linear attention share: moving rows between the caller's tensors and padded
// tiles. Include it inside a file that is compiled by hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_LINEAR_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_LINEAR_TILES_INL_H_
#undef LINNET_ATTENTION_LINEAR_TILES_INL_H_
#else
#define LINNET_ATTENTION_LINEAR_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
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

/// The rows of one head, `stride` floats apart.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;

  T* at(std::size_t row) const { return data + static_cast<std::int64_t>(row) * stride; }

  View<T> Tile(std::size_t first, std::size_t count, std::int64_t columns) const {
    return View<T>(at(first), {static_cast<std::int64_t>(count), columns}, {stride, 1});
  }
};

template <class T>
HWY_INLINE Rows<T> RowsOf(const View<T>& tensor, std::int64_t b, std::int64_t h,
                          std::int64_t first_column = 0) {
  return {tensor.at(b, 0, h, first_column), tensor.stride(1)};
}

HWY_INLINE void ZeroRows(float* tile, std::size_t ld, std::size_t first, std::size_t last) {
  if (first < last) std::memset(tile + first * ld, 0, (last - first) * ld * sizeof(float));
}

/// tile = φ of rows [first, first + count), then zeros up to `rows`.
HWY_INLINE void LoadFeatures(const LinearCall& call, bool query, std::int64_t head, Rows<const float> x,
                             std::size_t first, std::size_t count, float* tile, std::size_t ld,
                             std::size_t rows) {
  if (count > 0) {
    call.map.forward(
        Rows<float>{tile, static_cast<std::int64_t>(ld)}.Tile(0, count, call.features),
        x.Tile(first, count, call.sizes.head_dim),
        {call.layer, static_cast<int>(head), call.position(query) + static_cast<std::int64_t>(first), query});
  }
  ZeroRows(tile, ld, count, rows);
}

/// How often the products of a causal chunk fetch ahead: triangles within it, its rows with S, its columns
/// into S.
HWY_INLINE std::size_t Fetches(const LinearCall& call, std::size_t triangles, std::size_t of_chunk,
                               std::size_t of_state) {
  const auto features = static_cast<std::size_t>(call.features),
             columns = static_cast<std::size_t>(call.sizes.value_dim);
  return std::max<std::size_t>(1, triangles * FetchesOf(kChunk, kPad, features, Ahead::kSteps) +
                                      of_chunk * FetchesOf(kChunk, columns, features, Ahead::kSteps) +
                                      of_state * FetchesOf(features, columns, kChunk, Ahead::kSteps));
}

/// Whether stores past the caches suit `tensor`: they pay where it is larger than the caches are, and need
/// whole vectors.
HWY_INLINE bool CanStream(const View<float>& tensor) {
  const std::int64_t lanes = hn::Lanes(F32());
  const auto aligned = [&](std::int64_t floats) { return floats % lanes == 0; };
  return tensor.size() >= (std::int64_t{1} << 20) && aligned(tensor.stride(0)) && aligned(tensor.stride(1)) &&
         aligned(tensor.stride(2)) && aligned(tensor.extent(3)) &&
         reinterpret_cast<std::uintptr_t>(tensor.data()) % (lanes * sizeof(float)) == 0;
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
HWY_INLINE void LoadRows(Rows<const float> x, std::size_t first, std::size_t count, std::size_t columns,
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

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
