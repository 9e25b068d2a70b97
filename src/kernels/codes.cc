#include "kernels/codes.h"

#include <algorithm>
#include <cstring>

#include "base/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/codes.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/tile-inl.h"

// Codes are widened to 16 bits and multiplied in pairs, whose sums of 32 bits are two for every output: those
// of a four's first and second pair. They meet at the end of a slice.

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

constexpr std::int64_t panel_columns = NarrowLayout::columns;

/// Fours of a slice, whose 16 KB of a panel stay in the first-level cache while all rows meet them.
constexpr std::int64_t slice_fours = 64;

#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<std::int16_t> i16;
constexpr hn::RepartitionToWide<decltype(i16)> i32;
constexpr std::int64_t words = hn::MaxLanes(i16);
constexpr std::int64_t vector_columns = words / 4;

/// Vectors of columns of a tile of R rows, and how many of them meet the rows at once: with their factors and
/// products these fill the registers, of which there are 32 or 16.
template <int R>
constexpr int vectors_of = R == 1        ? 8
                           : words == 32 ? 4
                                         : 2;
template <int R>
constexpr int at_once = R == 1        ? vectors_of<R>
                        : words == 32 ? 2
                                      : 1;

using Sum = hn::Vec<decltype(i32)>;

/// sum[r][v] = Σ over the fours of row r and vector v of the columns at `weights`.
template <int R, int vectors>
HWY_INLINE void sum_fours(Sum (&sum)[R][vectors], const std::int16_t* HWY_RESTRICT rows,
                          std::int64_t row_stride, std::int64_t fours,
                          const std::int8_t* HWY_RESTRICT weights) {
  const hn::Rebind<std::int8_t, decltype(i16)> i8;
  const hn::Repartition<std::uint64_t, decltype(i16)> u64;
  Sum unused = hn::Zero(i32);  // x86 has no second sum
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sum[r][v] = hn::Zero(i32);
  }
  for (std::int64_t f = 0; f < fours; ++f, weights += 4 * panel_columns) {
    hn::Vec<decltype(i16)> w[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) w[v] = hn::PromoteTo(i16, hn::LoadU(i8, weights + v * words));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      std::uint64_t four;
      std::memcpy(&four, rows + r * row_stride + 4 * f, sizeof four);
      const auto x = hn::BitCast(i16, hn::Set(u64, four));
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v)
        sum[r][v] = hn::ReorderWidenMulAccumulate(i32, w[v], x, sum[r][v], unused);
    }
  }
}

template <int R>
HWY_INLINE void multiply_tile(std::int32_t* HWY_RESTRICT sums, std::int64_t stride, bool add,
                              const std::int16_t* HWY_RESTRICT rows, std::int64_t row_stride,
                              std::int64_t fours, const std::int8_t* HWY_RESTRICT panel) {
  constexpr int vectors = vectors_of<R>, pass = at_once<R>;
  for (std::int64_t j = 0; j < panel_columns; j += vectors * vector_columns) {
    Sum sum[vectors / pass][R][pass];
#pragma GCC unroll 2
    for (int p = 0; p < vectors / pass; ++p)
      sum_fours(sum[p], rows, row_stride, fours, panel + 4 * (j + p * pass * vector_columns));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; v += 2) {
        std::int32_t* HWY_RESTRICT to = sums + r * stride + j + v * vector_columns;
        const Sum one = sum[v / pass][r][v % pass], other = sum[(v + 1) / pass][r][(v + 1) % pass];
        const Sum all = hn::Add(hn::ConcatEven(i32, other, one), hn::ConcatOdd(i32, other, one));
        hn::StoreU(add ? hn::Add(hn::LoadU(i32, to), all) : all, i32, to);
      }
    }
  }
}

#else

template <int R>
void multiply_tile(std::int32_t* sums, std::int64_t stride, bool add, const std::int16_t* rows,
                   std::int64_t row_stride, std::int64_t fours, const std::int8_t* panel) {
  for (int r = 0; r < R; ++r) {
    for (std::int64_t n = 0; n < panel_columns; ++n) {
      std::int32_t sum = add ? sums[r * stride + n] : 0;
      for (std::int64_t f = 0; f < fours; ++f)
        for (std::int64_t k = 0; k < 4; ++k)
          sum = wrapping_sum(sum, rows[r * row_stride + 4 * f + k] * panel[(f * panel_columns + n) * 4 + k]);
      sums[r * stride + n] = sum;
    }
  }
}

#endif

/// The sums of one slice of one panel, columns [0, n) of it.
void multiply_slice(std::int32_t* sums, std::int64_t stride, std::int64_t n, bool add,
                    const std::int16_t* rows, std::int64_t row_stride, std::int64_t count, std::int64_t fours,
                    const std::int8_t* panel) {
  const std::int64_t tiles = (count + tile_rows - 1) / tile_rows;
  HWY_ALIGN std::int32_t whole[tile_rows * panel_columns];
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t begin = count * tile / tiles, end = count * (tile + 1) / tiles;
    std::int32_t* to = sums + begin * stride;
    for_tile_rows(static_cast<int>(end - begin), [&](auto size) HWY_ATTR {
      constexpr int R = decltype(size)::value;
      if (n == panel_columns)
        return multiply_tile<R>(to, stride, add, rows + begin * row_stride, row_stride, fours, panel);
      multiply_tile<R>(whole, panel_columns, false, rows + begin * row_stride, row_stride, fours, panel);
      for (int r = 0; r < R; ++r)
        for (std::int64_t j = 0; j < n; ++j)
          to[r * stride + j] = wrapping_sum(whole[r * panel_columns + j], add ? to[r * stride + j] : 0);
    });
  }
}

void multiply_widened(std::int32_t* sums, const NarrowLayout& layout, const std::int16_t* rows,
                      std::int64_t row_stride, std::int64_t count, const std::byte* panels,
                      std::int64_t outputs) {
  const std::int64_t fours = row_stride / 4;
  for (std::int64_t n = 0; n < outputs; n += panel_columns, panels += layout.panel_bytes()) {
    const auto* panel = reinterpret_cast<const std::int8_t*>(panels);
    for (std::int64_t f = 0; f < fours; f += slice_fours)
      multiply_slice(sums + n, outputs, std::min(panel_columns, outputs - n), f > 0, rows + 4 * f, row_stride,
                     count, std::min(slice_fours, fours - f), panel + 4 * f * panel_columns);
  }
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(multiply_widened);

}  // namespace

void multiply_codes(Context& own, std::int32_t* sums, const NarrowLayout& layout, const std::uint8_t* rows,
                    std::int64_t count, const std::byte* panels, std::int64_t outputs) {
  const std::int64_t stride = (layout.inputs + 3) / 4 * 4;
  Workspace workspace(own);
  std::int16_t* const room = workspace.array<std::int16_t>(count * stride).data();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int16_t* const to = room + i * stride;
    std::copy_n(rows + i * layout.inputs, layout.inputs, to);
    std::fill(to + layout.inputs, to + stride, std::int16_t{0});
  }
  if (layout.inputs == 0) std::fill_n(sums, count * outputs, 0);
  HWY_DYNAMIC_DISPATCH(multiply_widened)(sums, layout, room, stride, count, panels, outputs);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
