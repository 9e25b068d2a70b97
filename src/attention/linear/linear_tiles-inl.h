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
#include "attention/tile_gemm-inl.h"
#include "hwy/cache_control.h"
#include "kernels/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

HWY_INLINE std::size_t RoundUp(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// From row to row of a tile with `columns` columns: rows whole pages apart would meet in the same few lines
/// of a cache.
HWY_INLINE std::size_t TileStride(std::size_t columns) {
  const std::size_t padded = RoundUp(columns, kPad);
  return padded % 256 == 0 ? padded + kPad : padded;
}

/// The rows of one head in the caller's memory, f32 or bf16.
template <class Byte>
struct HeadRows {
  Byte* data = nullptr;
  std::int64_t stride = 0;  ///< in elements
  std::int64_t columns = 0;
  bool half = false;

  std::size_t element() const { return half ? sizeof(bf16) : sizeof(float); }
  Byte* at(std::size_t row) const { return data + static_cast<std::int64_t>(row * element()) * stride; }
};
using InputRows = HeadRows<const std::byte>;
using OutputRows = HeadRows<std::byte>;

/// Rows of head h of batch entry b, their columns [first, last).
template <class Byte>
HWY_INLINE HeadRows<Byte> RowsOf(const BasicFloatView<Byte>& tensor, std::int64_t b, std::int64_t h,
                                 std::int64_t first, std::int64_t last) {
  const bool half = tensor.dtype() == DType::bf16;
  using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
  using Half = std::conditional_t<std::is_const_v<Byte>, const bf16, bf16>;
  Byte* data = half ? reinterpret_cast<Byte*>(tensor.template as<Half>().at(b, 0, h, first))
                    : reinterpret_cast<Byte*>(tensor.template as<Float>().at(b, 0, h, first));
  return {data, tensor.stride(1), last - first, half};
}

template <class Byte>
HWY_INLINE HeadRows<Byte> RowsOf(const BasicFloatView<Byte>& tensor, std::int64_t b, std::int64_t h) {
  return RowsOf(tensor, b, h, 0, tensor.extent(3));
}

HWY_INLINE void Fetch(Ahead& ahead, const InputRows& rows, Mask::Interval range) {
  ahead.Add(rows.at(static_cast<std::size_t>(range.begin)),
            rows.stride * static_cast<std::int64_t>(rows.element()),
            static_cast<std::size_t>(range.end - range.begin),
            static_cast<std::size_t>(rows.columns) * rows.element());
}

HWY_INLINE void ZeroRows(float* tile, std::size_t ld, std::size_t first, std::size_t last) {
  if (first < last) std::memset(tile + first * ld, 0, (last - first) * ld * sizeof(float));
}

/// to[i] = from[i], bf16 widened.
HWY_INLINE void WidenRow(float* HWY_RESTRICT to, const bf16* HWY_RESTRICT from, std::int64_t count) {
  const F32 d;
  const hn::Rebind<std::uint32_t, F32> d32;
  const hn::Rebind<std::uint16_t, F32> d16;
  const std::int64_t lanes = hn::Lanes(d);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, bits + i)))), d, to + i);
  for (; i < count; ++i) to[i] = to_float(from[i]);
}

/// to = scale · from. `stream` asks for stores past the caches and needs `to` aligned and `count` in whole
/// vectors.
HWY_INLINE void CopyRow(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::int64_t count,
                        float scale = 1.0f, bool stream = false) {
  const F32 d;
  const std::int64_t lanes = hn::Lanes(d);
  const Vec32 factor = hn::Set(d, scale);
  std::int64_t i = 0;
  if (stream) {
    for (; i < count; i += lanes) hn::Stream(hn::Mul(factor, hn::LoadU(d, from + i)), d, to + i);
    return;
  }
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(factor, hn::LoadU(d, from + i)), d, to + i);
  for (; i < count; ++i) to[i] = scale * from[i];
}

/// to[i] = scale · from[i], rounded to the nearest bf16, ties to even; `stream` as for CopyRow.
HWY_INLINE void NarrowRow(bf16* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::int64_t count,
                          float scale, bool stream) {
  const F32 d;
  const hn::Rebind<std::uint16_t, F32> u16;
  const std::int64_t lanes = hn::Lanes(d);
  auto* bits = reinterpret_cast<std::uint16_t*>(to);
  const Vec32 factor = hn::Set(d, scale);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto half = kernels::HWY_NAMESPACE::Bf16Bits(d, hn::Mul(factor, hn::LoadU(d, from + i)));
    stream ? hn::Stream(half, u16, bits + i) : hn::StoreU(half, u16, bits + i);
  }
  for (; i < count; ++i) to[i] = to_bf16(scale * from[i]);
}

/// Whether stores past the caches suit `tensor`: they pay where it is larger than the caches are, and need
/// whole vectors.
HWY_INLINE bool CanStream(const FloatView& tensor) {
  if (tensor.size() < (std::int64_t{1} << 20)) return false;
  const bool half = tensor.dtype() == DType::bf16;
  const std::int64_t lanes = hn::Lanes(F32());
  const auto aligned = [&](std::int64_t floats) { return floats % lanes == 0; };
  const void* data = half ? static_cast<const void*>(tensor.as<bf16>().data()) : tensor.as<float>().data();
  const auto vector = static_cast<std::uintptr_t>(lanes) * (half ? sizeof(bf16) : sizeof(float));
  return aligned(tensor.stride(0)) && aligned(tensor.stride(1)) && aligned(tensor.stride(2)) &&
         aligned(tensor.extent(3)) && reinterpret_cast<std::uintptr_t>(data) % vector == 0;
}

/// The row of the caller's tensor = scale · from.
HWY_INLINE void StoreRow(const OutputRows& rows, std::size_t row, const float* from, float scale,
                         bool stream) {
  const auto count = static_cast<std::size_t>(rows.columns);
  if (rows.half)
    NarrowRow(reinterpret_cast<bf16*>(rows.at(row)), from, count, scale, stream);
  else
    CopyRow(reinterpret_cast<float*>(rows.at(row)), from, count, scale, stream);
}

HWY_INLINE void ClearRows(const OutputRows& rows, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i)
    std::memset(rows.at(i), 0, static_cast<std::size_t>(rows.columns) * rows.element());
}

HWY_INLINE void LoadRow(float* to, const InputRows& rows, std::size_t row) {
  const auto count = static_cast<std::size_t>(rows.columns);
  if (rows.half)
    WidenRow(to, reinterpret_cast<const bf16*>(rows.at(row)), count);
  else
    CopyRow(to, reinterpret_cast<const float*>(rows.at(row)), count);
}

/// tile = rows `range` of x, then zeros up to `padded` rows.
HWY_INLINE void LoadRows(const InputRows& x, Mask::Interval range, float* tile, std::size_t ld,
                         std::size_t padded) {
  const auto count = static_cast<std::size_t>(range.end - range.begin);
  for (std::size_t i = 0; i < count; ++i)
    LoadRow(tile + i * ld, x, static_cast<std::size_t>(range.begin) + i);
  ZeroRows(tile, ld, count, padded);
}

/// Rows `range` of x as f32: where they lie, or widened into `wide` [rows, columns].
HWY_INLINE View<const float> InputTile(const InputRows& x, Mask::Interval range, float* wide) {
  const std::int64_t count = range.end - range.begin;
  const auto first = static_cast<std::size_t>(range.begin);
  if (!x.half) return {reinterpret_cast<const float*>(x.at(first)), {count, x.columns}, {x.stride, 1}};
  LoadRows(x, range, wide, static_cast<std::size_t>(x.columns), 0);
  return {wide, {count, x.columns}};
}

HWY_INLINE TileContext ContextOf(Context& own, const LinearCall& call, bool query, std::int64_t head,
                                 std::int64_t first) {
  return {call.layer, static_cast<int>(head), call.position(query) + first, query, &own};
}

/// tile = φ of rows `range`, then zeros up to `padded` rows. `log_scale` receives the rows' log-scales where
/// the map has them.
HWY_INLINE void LoadFeatures(Context& own, const LinearCall& call, bool query, std::int64_t head,
                             const InputRows& x, Mask::Interval range, float* tile, std::size_t ld,
                             std::size_t padded, float* wide, double* log_scale) {
  const std::int64_t count = range.end - range.begin;
  const View<float> features(tile, {count, call.features}, {static_cast<std::int64_t>(ld), 1});
  const TileContext context = ContextOf(own, call, query, head, range.begin);
  if (count > 0 && call.scaled != nullptr)
    call.scaled->forward_scaled(features, {log_scale, static_cast<std::size_t>(count)},
                                InputTile(x, range, wide), context);
  else if (count > 0)
    call.map.forward(features, InputTile(x, range, wide), context);
  ZeroRows(tile, ld, static_cast<std::size_t>(count), padded);
}

/// to[i] = weight[i] · from[i] for rows of a tile, `columns` a multiple of kPad.
HWY_INLINE void ScaleRows(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::size_t ld,
                          const float* HWY_RESTRICT weight, std::size_t rows, std::size_t columns) {
  const F32 d;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
      hn::Store(hn::Mul(hn::Set(d, weight[r]), hn::Load(d, from + r * ld + c)), d, to + r * ld + c);
}

/// to += from for rows of a tile.
HWY_INLINE void AddTile(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::size_t ld,
                        std::size_t rows, std::size_t columns) {
  const F32 d;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
      hn::Store(hn::Add(hn::Load(d, to + r * ld + c), hn::Load(d, from + r * ld + c)), d, to + r * ld + c);
}

/// Σ_r weight[r · step] tile[r, c] for a vector of columns; every weight is 1 where it is null.
HWY_INLINE Vec32 SumOfRows(const float* HWY_RESTRICT tile, std::size_t ld, const float* HWY_RESTRICT weight,
                           std::size_t step, std::size_t rows) {
  const F32 d;
  Vec32 sum = hn::Zero(d);
  if (weight == nullptr) {
    for (std::size_t r = 0; r < rows; ++r) sum = hn::Add(sum, hn::Load(d, tile + r * ld));
  } else {
    for (std::size_t r = 0; r < rows; ++r)
      sum = hn::MulAdd(hn::Set(d, weight[r * step]), hn::Load(d, tile + r * ld), sum);
  }
  return sum;
}

/// sum[c] = Σ_r weight[r · step] tile[r, c].
HWY_INLINE void SumRows(float* HWY_RESTRICT sum, const float* HWY_RESTRICT tile, std::size_t ld,
                        const float* HWY_RESTRICT weight, std::size_t step, std::size_t rows,
                        std::size_t columns) {
  const F32 d;
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
    hn::Store(SumOfRows(tile + c, ld, weight, step, rows), d, sum + c);
}

/// sum[c] = fade · sum[c] + Σ_r weight[r · step] tile[r, c], compensated.
HWY_INLINE void CollectRows(float* HWY_RESTRICT sum, float* HWY_RESTRICT rest, const float* HWY_RESTRICT tile,
                            std::size_t ld, const float* HWY_RESTRICT weight, std::size_t step,
                            std::size_t rows, std::size_t columns, float fade) {
  const F32 d;
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
    CollectVector(sum + c, rest + c, SumOfRows(tile + c, ld, weight, step, rows), hn::Set(d, fade));
}

/// x·y of `columns` numbers, a multiple of kPad.
HWY_INLINE float Dot(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, std::size_t columns) {
  const F32 d;
  Vec32 sum = hn::Zero(d);
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
    sum = hn::MulAdd(hn::Load(d, x + c), hn::Load(d, y + c), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
