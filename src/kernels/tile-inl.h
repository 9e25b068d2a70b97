// The tile at the heart of our own dense products: R rows by 64 columns over at most one slice of the inner
// dimension, all sums in registers, every one of them a sequence of fused multiply-adds in the order of the
// inner index. That order is the definition of a product here: oneDNN's AVX-512 kernels round the same way,
// and so a row's bits depend neither on the rows beside it nor on which of the two computed it.

#if defined(LINNET_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_TILE_INL_H_
#undef LINNET_KERNELS_TILE_INL_H_
#else
#define LINNET_KERNELS_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// Most rows of a tile: 6 × 4 sums, 4 columns and nothing else fill the 32 registers of AVX-512 well enough;
/// with 16 registers the tile is cut into 6 × 2.
inline constexpr int tile_rows = 6;

/// sums[r][j] (=, or += where `add`) Σ_k a(r, k) b[k][j] for r < R and at least all j < columns ≤ 64. a(r, k)
/// lies at a[r · lda + k], or, where `transposed`, at a[k · lda + r]; b rows are ldb floats apart, sums
/// rows 64.
template <int R, int vectors, bool transposed>
HWY_INLINE void tile_product(int columns, float* HWY_RESTRICT sums, bool add, const float* HWY_RESTRICT a,
                             std::int64_t lda, const float* HWY_RESTRICT b, std::int64_t ldb,
                             std::int64_t inner) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int lanes = static_cast<int>(hn::MaxLanes(d));
  for (int j = 0; j < columns; j += vectors * lanes) {
    V sum[R][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sum[r][v] = hn::Zero(d);
    }
    const float* HWY_RESTRICT column = b + j;
    const float* HWY_RESTRICT row = a;
    for (std::int64_t k = 0; k < inner; ++k) {
      V x[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) x[v] = hn::LoadU(d, column + v * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V w = hn::Set(d, transposed ? row[r] : row[r * lda]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[r][v] = hn::MulAdd(w, x[v], sum[r][v]);
      }
      column += ldb;
      row += transposed ? lda : 1;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        float* HWY_RESTRICT to = sums + r * 64 + j + v * lanes;
        hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
      }
    }
  }
}

template <int R, bool transposed>
HWY_INLINE void tile_product(int columns, float* sums, bool add, const float* a, std::int64_t lda,
                             const float* b, std::int64_t ldb, std::int64_t inner) {
  constexpr int lanes =
      static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::CappedTag<float, 16>()));
  if constexpr (lanes == 16 || R <= 3) {
    if (lanes < 16 || columns > 2 * lanes)
      return tile_product<R, 4, transposed>(columns, sums, add, a, lda, b, ldb, inner);
  }
  tile_product<R, 2, transposed>(columns, sums, add, a, lda, b, ldb, inner);
}

/// The same for a number of rows known only at run time, 1 … tile_rows.
template <bool transposed>
HWY_INLINE void tile_product(int rows, int columns, float* sums, bool add, const float* a, std::int64_t lda,
                             const float* b, std::int64_t ldb, std::int64_t inner) {
  static_assert(tile_rows == 6);
  switch (rows) {
    case 1:
      return tile_product<1, transposed>(columns, sums, add, a, lda, b, ldb, inner);
    case 2:
      return tile_product<2, transposed>(columns, sums, add, a, lda, b, ldb, inner);
    case 3:
      return tile_product<3, transposed>(columns, sums, add, a, lda, b, ldb, inner);
    case 4:
      return tile_product<4, transposed>(columns, sums, add, a, lda, b, ldb, inner);
    case 5:
      return tile_product<5, transposed>(columns, sums, add, a, lda, b, ldb, inner);
    default:
      return tile_product<6, transposed>(columns, sums, add, a, lda, b, ldb, inner);
  }
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
