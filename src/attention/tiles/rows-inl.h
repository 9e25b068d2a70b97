// Rows between the caller's tensors, f32 or bf16, and f32 tiles. Include it inside a file that is compiled by
// hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_TILES_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_TILES_ROWS_INL_H_
#undef LINNET_ATTENTION_TILES_ROWS_INL_H_
#else
#define LINNET_ATTENTION_TILES_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "attention/tiles/rows.h"
#include "base/cache_line.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/bf16-inl.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// to[i] = from[i], bf16 widened.
HWY_INLINE void widen_row(float* HWY_RESTRICT to, const bf16* HWY_RESTRICT from, std::int64_t count) {
  kernels::HWY_NAMESPACE::for_vectors(
      count, [&](const auto& lanes, std::int64_t i) HWY_ATTR { lanes.store(lanes.load(from + i), to + i); });
}

/// to = scale · from. `stream` asks for stores past the caches and needs `to` aligned and `count` in whole
/// vectors.
HWY_INLINE void copy_row(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::int64_t count,
                         float scale = 1.0f, bool stream = false) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, scale);
  if (stream) {
    for (std::int64_t i = 0; i < count; i += lanes)
      hn::Stream(hn::Mul(factor, hn::LoadU(d, from + i)), d, to + i);
    return;
  }
  kernels::HWY_NAMESPACE::for_vectors(count, [&](const auto& some, std::int64_t i) HWY_ATTR {
    some.store(hn::Mul(factor, some.load(from + i)), to + i);
  });
}

/// to[i] = scale · from[i], rounded to the nearest bf16, ties to even; `stream` as for copy_row.
HWY_INLINE void narrow_row(bf16* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::int64_t count,
                           float scale = 1.0f, bool stream = false) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const std::int64_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, scale);
  if (stream) {
    for (std::int64_t i = 0; i < count; i += lanes)
      hn::Stream(kernels::HWY_NAMESPACE::bf16_bits(d, hn::Mul(factor, hn::LoadU(d, from + i))), d16,
                 &to[i].bits);
    return;
  }
  kernels::HWY_NAMESPACE::for_vectors(count, [&](const auto& some, std::int64_t i) HWY_ATTR {
    some.store(hn::Mul(factor, some.load(from + i)), to + i);
  });
}

/// to = the row.
HWY_INLINE void load_row(float* to, const InputRows& rows, std::int64_t row) {
  if (rows.half())
    widen_row(to, reinterpret_cast<const bf16*>(rows.at(row)), rows.columns);
  else
    copy_row(to, reinterpret_cast<const float*>(rows.at(row)), rows.columns);
}

/// The row = scale · from; `stream` as for copy_row.
HWY_INLINE void store_row(const OutputRows& rows, std::int64_t row, const float* from, float scale = 1.0f,
                          bool stream = false) {
  if (rows.half())
    narrow_row(reinterpret_cast<bf16*>(rows.at(row)), from, rows.columns, scale, stream);
  else
    copy_row(reinterpret_cast<float*>(rows.at(row)), from, rows.columns, scale, stream);
}

/// Whether every row is whole vectors from the boundary of one on, as stores past the caches need it. These
/// write 16 bytes at least, which four numbers of bf16 are not.
HWY_INLINE bool whole_vectors(const OutputRows& rows) {
  const std::int64_t lanes = hn::Lanes(hn::ScalableTag<float>());
  return lanes * rows.element() >= 16 && rows.columns % lanes == 0 && rows.stride % lanes == 0 &&
         reinterpret_cast<std::uintptr_t>(rows.data) % static_cast<std::uintptr_t>(lanes * rows.element()) ==
             0;
}

/// Rows that are asked for before they are read.
constexpr std::int64_t kRowsAhead = 8;

/// Asks for a row, which need not be there, where the rows of a head lie apart: the hardware does not foresee
/// them then.
HWY_INLINE void fetch_row(const InputRows& rows, std::int64_t row) {
  if (rows.stride == rows.columns) return;
  prefetch(reinterpret_cast<std::uintptr_t>(rows.data) +
               static_cast<std::uintptr_t>(row * rows.element() * rows.stride),
           static_cast<std::size_t>(rows.columns * rows.element()));
}

/// The first `count` rows, or those at `places`, `ld` apart, each filled up with zeros to `width`.
HWY_INLINE void pack_rows(float* to, std::int64_t ld, const InputRows& rows, std::int64_t count,
                          std::int64_t width, const std::int64_t* places = nullptr) {
  for (std::int64_t i = 0; i < count; ++i, to += ld) {
    const std::int64_t ahead = i + kRowsAhead;
    if (places == nullptr || ahead < count) fetch_row(rows, places != nullptr ? places[ahead] : ahead);
    load_row(to, rows, places != nullptr ? places[i] : i);
    std::fill(to + rows.columns, to + width, 0.0f);
  }
}

HWY_INLINE void zero_rows(float* tile, std::size_t ld, std::size_t first, std::size_t last) {
  if (first < last) std::memset(tile + first * ld, 0, (last - first) * ld * sizeof(float));
}

HWY_INLINE void clear_rows(const OutputRows& rows, std::int64_t first, std::int64_t last) {
  for (std::int64_t i = first; i < last; ++i)
    std::memset(rows.at(i), 0, static_cast<std::size_t>(rows.columns * rows.element()));
}

/// Whether no element of x [rows, columns], rows `ld` apart, is infinite or NaN: 0 · x is then 0 everywhere.
HWY_INLINE bool all_finite(const float* x, std::int64_t ld, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t chains = 4;  // side by side, since each waits for its own last sum
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sums[chains] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  float sum = 0;
  for (std::int64_t r = 0; r < rows; ++r, x += ld) {
    std::int64_t i = 0;
    for (; i + chains * lanes <= columns; i += chains * lanes) {
      for (std::int64_t c = 0; c < chains; ++c)
        sums[c] = hn::MulAdd(hn::LoadU(d, x + i + c * lanes), hn::Zero(d), sums[c]);
    }
    for (; i + lanes <= columns; i += lanes) sums[0] = hn::MulAdd(hn::LoadU(d, x + i), hn::Zero(d), sums[0]);
    for (; i < columns; ++i) sum += x[i] * 0.0f;
  }
  const auto total = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return sum + hn::GetLane(hn::SumOfLanes(d, total)) == 0.0f;
}
HWY_INLINE bool all_finite(const float* x, std::int64_t count) { return all_finite(x, 0, 1, count); }

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
