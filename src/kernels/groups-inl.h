// Tiles of products of narrow rows, computed by the two instructions of AVX-512 that multiply a group and add
// its products to a sum: vpdpbusd for four codes (VNNI), vdpbf16ps for two numbers of bf16. Highway 1.0.3 has
// neither. Included like simd_math-inl.h.

#if defined(LINNET_KERNELS_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GROUPS_INL_H_
#undef LINNET_KERNELS_GROUPS_INL_H_
#else
#define LINNET_KERNELS_GROUPS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/narrow.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// What sums of products are.
template <WeightType type>
using GroupSum = std::conditional_t<type == WeightType::bf16, float, std::int32_t>;

/// The left factor of a tile: rows of groups, or, where the product has the transpose of a factor in panels,
/// rows of which each is a column of one. `at` is the first row's first group.
struct GroupRows {
  const std::byte* at;
  std::int64_t row_bytes;
  GroupRows from(std::int64_t row) const { return {group(row, 0), row_bytes}; }
  const std::byte* group(std::int64_t row, std::int64_t byte) const { return at + row * row_bytes + byte; }
};
struct GroupColumns {
  const std::byte* at;
  GroupColumns from(std::int64_t row) const { return {group(row, 0)}; }
  const std::byte* group(std::int64_t row, std::int64_t byte) const {
    return at + 4 * row + byte * NarrowLayout::columns;
  }
};

#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64

/// Whether this instruction set may come with those instructions. Where it does not, nothing below is called.
inline constexpr bool group_tiles = true;

/// The group at `from`, of which the first `bytes` are there.
HWY_INLINE std::uint32_t part_of_group(const std::byte* from, std::int64_t bytes) {
  std::uint32_t group = 0;
  for (std::int64_t b = 0; b < bytes; ++b) group |= std::to_integer<std::uint32_t>(from[b]) << 8 * b;
  return group;
}

/// sum + the products of the groups in every word of `rows` and `weights`.
template <WeightType type, class V, class Words>
HWY_INLINE V add_products(V sum, Words rows, Words weights) {
  if constexpr (type == WeightType::bf16)
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(rows.raw), "v"(weights.raw));
  else
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(rows.raw), "v"(weights.raw));
  return sum;
}

/// sum[r][v] += the products of the group at `byte` of row r and of columns v · 16 … of the panel. Of a
/// `part` of a group `bytes` are there.
template <WeightType type, bool part, int R, class Sum, class Rows>
HWY_INLINE void add_group(Sum (&sum)[R][4], const Rows& rows, std::int64_t byte, std::int64_t bytes,
                          const std::byte* HWY_RESTRICT panel) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint32_t> u32;
  hn::Vec<decltype(u32)> weights[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v)
    weights[v] = hn::LoadU(u32, reinterpret_cast<const std::uint32_t*>(panel) + 16 * v);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    std::uint32_t group;
    if constexpr (part)
      group = part_of_group(rows.group(r, byte), bytes);
    else
      std::memcpy(&group, rows.group(r, byte), sizeof group);
    const auto row = hn::Set(u32, group);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sum[r][v] = add_products<type>(sum[r][v], row, weights[v]);
  }
}

/// sums [R, 64] = R rows of `row_bytes` · one panel. Every sum is a sequence of groups in the order of the
/// inner index. 64 R multiply-adds of a group for R + 4 loads.
template <WeightType type, int R, class Rows>
HWY_INLINE void multiply_group_tile(GroupSum<type>* HWY_RESTRICT sums, const Rows& rows,
                                    std::int64_t row_bytes, const std::byte* HWY_RESTRICT panel,
                                    NextPanel following) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<GroupSum<type>> d;
  hn::Vec<decltype(d)> sum[R][4];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sum[r][v] = hn::Zero(d);
  }
  constexpr std::int64_t group = 4, group_bytes = group * NarrowLayout::columns;
  std::int64_t k = 0;
  for (; k + group <= row_bytes; k += group, panel += group_bytes) {
    following.fetch();
    add_group<type, false>(sum, rows, k, group, panel);
  }
  if (k < row_bytes) add_group<type, true>(sum, rows, k, row_bytes - k, panel);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) hn::StoreU(sum[r][v], d, sums + r * NarrowLayout::columns + 16 * v);
  }
}

#else

inline constexpr bool group_tiles = false;

template <WeightType type, int R, class Rows>
void multiply_group_tile(GroupSum<type>*, const Rows&, std::int64_t, const std::byte*, NextPanel) {}

#endif

/// Multiplies tile by tile and calls destination.fetch(begin, end, j, n) before each and then(sums, begin,
/// end, j, n) after it: `sums` [end − begin, 64] are those of rows begin … end − 1 and columns j … j + n − 1.
template <WeightType type, class Rows, class Destination, class Then>
HWY_INLINE void multiply_group_tiles(const NarrowProduct& product, const Rows& rows,
                                     const Destination& destination, const Then& then) {
  constexpr std::int64_t columns = NarrowLayout::columns;
  HWY_ALIGN GroupSum<type> sums[tile_rows * columns];
  const std::byte* panel = product.panels;
  const std::int64_t row_bytes = product.row_bytes();
  const std::int64_t tiles = (product.count + tile_rows - 1) / tile_rows;
  for (std::int64_t j = 0; j < product.outputs; j += columns, panel += product.layout.panel_bytes()) {
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t begin = product.count * tile / tiles, end = product.count * (tile + 1) / tiles;
      const std::int64_t n = std::min(columns, product.outputs - j);
      destination.fetch(begin, end, j, n);
      for_tile_rows(static_cast<int>(end - begin), [&](auto size) HWY_ATTR {
        constexpr int R = decltype(size)::value;
        const NextPanel next = tiles == 1 && product.count > 1
                                   ? NextPanel::soon(panel)
                                   : NextPanel::of_tile(panel, product.layout.panel_bytes(), tile, tiles);
        multiply_group_tile<type, R>(sums, rows.from(begin), row_bytes, panel, next);
      });
      then(sums, begin, end, j, n);
    }
  }
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
