// What the chunked kernels of linear attention share: features and sums in padded tiles. Include it inside a
// file that is compiled by hwy/foreach_target.h.

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
#include "attention/tiles/gemm-inl.h"
#include "attention/tiles/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

HWY_INLINE std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// From row to row of a tile with `columns` columns: rows whole pages apart would meet in the same few lines
/// of a cache.
HWY_INLINE std::size_t tile_stride(std::size_t columns) {
  const std::size_t padded = round_up(columns, kPad);
  return padded % 256 == 0 ? padded + kPad : padded;
}

/// Rows that results go to. `whole` says that they are whole vectors of f32, which products write themselves;
/// `stream` that they are written past the caches.
struct ResultRows {
  OutputRows rows;
  bool whole = false, stream = false;
};
inline ResultRows result_rows(const FloatView& tensor, const OutputRows& rows) {
  const bool vectors = whole_vectors(rows);
  return {rows, vectors && !rows.half(), vectors && tensor.size() >= kBeyondCaches};
}

/// tile = rows `range` of x, then zeros up to `padded` rows.
inline HWY_NOINLINE void load_rows(const InputRows& x, Mask::Interval range, float* tile, std::size_t ld,
                                   std::size_t padded) {
  const auto count = static_cast<std::size_t>(range.end - range.begin);
  for (std::size_t i = 0; i < count; ++i)
    load_row(tile + i * ld, x, range.begin + static_cast<std::int64_t>(i));
  zero_rows(tile, ld, count, padded);
}

/// Rows `range` of x as f32: where they lie, or widened into `wide` [rows, columns].
HWY_INLINE View<const float> input_tile(const InputRows& x, Mask::Interval range, float* wide) {
  const std::int64_t count = range.end - range.begin;
  if (!x.half()) return {x.from(range.begin).floats(), {count, x.columns}, {x.stride, 1}};
  load_rows(x, range, wide, static_cast<std::size_t>(x.columns), 0);
  return {wide, {count, x.columns}};
}

HWY_INLINE TileContext context_of(Context& own, const LinearCall& call, bool query, std::int64_t head,
                                  std::int64_t first) {
  return {call.layer, static_cast<int>(head), call.position(query) + first, query, &own};
}

/// tile = φ of rows `range`, then zeros up to `padded` rows. `log_scale` receives the rows' log-scales where
/// the map has them.
inline HWY_NOINLINE void load_features(Context& own, const LinearCall& call, bool query, std::int64_t head,
                                       const InputRows& x, Mask::Interval range, float* tile, std::size_t ld,
                                       std::size_t padded, float* wide, double* log_scale) {
  const std::int64_t count = range.end - range.begin;
  const View<float> features(tile, {count, call.features}, {static_cast<std::int64_t>(ld), 1});
  const TileContext context = context_of(own, call, query, head, range.begin);
  if (count > 0 && call.scaled)
    call.map.forward_scaled(features, {log_scale, static_cast<std::size_t>(count)},
                            input_tile(x, range, wide), context);
  else if (count > 0)
    call.map.forward(features, input_tile(x, range, wide), context);
  if (const double step = call.log_decay(head); step != 0)
    for (std::int64_t i = 0; i < count; ++i)
      log_scale[i] += (query ? step : -step) * static_cast<double>(range.begin + i);
  zero_rows(tile, ld, static_cast<std::size_t>(count), padded);
}

/// to[i] = weight[i] · from[i] for rows of a tile, `columns` a multiple of kPad.
inline HWY_NOINLINE void scale_rows(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::size_t ld,
                                    const float* HWY_RESTRICT weight, std::size_t rows, std::size_t columns) {
  const F32 d;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
      hn::Store(hn::Mul(hn::Set(d, weight[r]), hn::Load(d, from + r * ld + c)), d, to + r * ld + c);
}

/// to += from for rows of a tile.
inline HWY_NOINLINE void add_tile(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::size_t ld,
                                  std::size_t rows, std::size_t columns) {
  const F32 d;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
      hn::Store(hn::Add(hn::Load(d, to + r * ld + c), hn::Load(d, from + r * ld + c)), d, to + r * ld + c);
}

/// Σ_r weight[r · step] tile[r, c] for a vector of columns; every weight is 1 where it is null.
HWY_INLINE Vec32 sum_of_rows(const float* HWY_RESTRICT tile, std::size_t ld, const float* HWY_RESTRICT weight,
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
inline HWY_NOINLINE void sum_rows(float* HWY_RESTRICT sum, const float* HWY_RESTRICT tile, std::size_t ld,
                                  const float* HWY_RESTRICT weight, std::size_t step, std::size_t rows,
                                  std::size_t columns) {
  const F32 d;
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
    hn::Store(sum_of_rows(tile + c, ld, weight, step, rows), d, sum + c);
}

/// sum[c] = fade · sum[c] + Σ_r weight[r · step] tile[r, c], compensated.
inline HWY_NOINLINE void collect_rows(float* HWY_RESTRICT sum, float* HWY_RESTRICT rest,
                                      const float* HWY_RESTRICT tile, std::size_t ld,
                                      const float* HWY_RESTRICT weight, std::size_t step, std::size_t rows,
                                      std::size_t columns, Fade fade) {
  const F32 d;
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d)) {
    const Vec32 term = sum_of_rows(tile + c, ld, weight, step, rows);
    if (fade.lost != 0)
      collect_vector(sum + c, rest + c, term, fade);
    else
      collect_vector(sum + c, rest + c, term, hn::Set(d, fade.factor));
  }
}

/// Lane i is the sum of the lanes of sums[i]; as many of them as a vector has lanes.
template <std::size_t kCount = hn::MaxLanes(F32())>
HWY_INLINE Vec32 sum_of_each(const Vec32* sums) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kCount > 1) {
    const F32 d;
    const Vec32 low = sum_of_each<kCount / 2>(sums), high = sum_of_each<kCount / 2>(sums + kCount / 2);
    return hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
  }
#endif
  return sums[0];
}

/// x·y of `columns` numbers, a multiple of kPad.
HWY_INLINE float dot(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, std::size_t columns) {
  const F32 d;
  Vec32 sum = hn::Zero(d);
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d))
    sum = hn::MulAdd(hn::Load(d, x + c), hn::Load(d, y + c), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
