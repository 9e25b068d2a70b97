// The tile at the heart of the dense products: R rows by 64 columns over at most one slice of the inner
// dimension, all sums in registers, every one of them a sequence of multiply-adds, fused where the
// instruction set fuses them, in the order of the inner index. That order is the definition of a product
// here, so that a row's bits do not depend on the rows beside it.

#if defined(LINNET_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_TILE_INL_H_
#undef LINNET_KERNELS_TILE_INL_H_
#else
#define LINNET_KERNELS_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// Most rows of a tile: 6 × 4 sums, 4 columns and nothing else fill the 32 registers of AVX-512 well enough;
/// with 16 registers the tile is cut into 6 × 2.
inline constexpr int tile_rows = 6;

/// Calls body(R) with a number of rows, 1 … tile_rows, as a compile-time constant.
template <class Body>
HWY_INLINE void for_tile_rows(int rows, const Body& body) {
  static_assert(tile_rows == 6);
  switch (rows) {
    case 1:
      return body(std::integral_constant<int, 1>());
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    case 4:
      return body(std::integral_constant<int, 4>());
    case 5:
      return body(std::integral_constant<int, 5>());
    default:
      return body(std::integral_constant<int, 6>());
  }
}

/// What follows the panel, or the part of one, that a tile reads. Every tile asks for a part of it: its first
/// reader would otherwise wait for all of it, while those that come later read it from the second cache.
struct NextPanel {
  const std::byte* at;
  std::int64_t step;    ///< bytes that a tile asks for while it reads 256
  std::int64_t second;  ///< where the second line of those begins, 0 where there is one at most

  static NextPanel nothing(const void* near) { return {static_cast<const std::byte*>(near), 0, 0}; }
  /// For the only tile that reads a panel: what it will read itself a little later, every other line, beside
  /// which the processor fetches the next one.
  static NextPanel soon(const void* panel) { return {static_cast<const std::byte*>(panel) + 2048, 256, 128}; }
  /// For tile `tile` of `tiles` that read the panel of `bytes`.
  static NextPanel of_tile(const void* panel, std::int64_t bytes, std::int64_t tile, std::int64_t tiles) {
    const std::int64_t parts = tiles >= 4 ? 4 : 2, part = tiles >= 4 ? bytes / 4 : bytes / 2;
    if (tiles < 2 || tile >= parts) return nothing(panel);
    return {static_cast<const std::byte*>(panel) + bytes + tile * part, 256 / parts, parts == 2 ? 64 : 0};
  }

  HWY_INLINE void fetch() {
    __builtin_prefetch(at, 0, 2);
    if (second != 0) __builtin_prefetch(at + second, 0, 2);
    at += step;
  }
};

/// The right factor, rows of `stride` words; a column is `from` it. Words are numbers of f32, or hold those
/// of two rows of bf16, the first one's in their low halves. A missing last row of bf16 is zero. `following`
/// asks for memory that is needed later, with every row.
template <class Word, class Following = NextPanel>
struct PanelRows {
  static constexpr int together = std::is_same_v<Word, float> ? 1 : 2;
  const Word* at;
  std::int64_t stride;
  Following following = Following::nothing(at);

  HWY_INLINE PanelRows from(std::int64_t column) const {
    return {at + column, stride, column == 0 ? following : Following::nothing(at)};
  }
  HWY_INLINE void next() {
    at += stride;
    following.fetch();
  }
  template <int row, class D>
  HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, std::int64_t column) const {
    namespace hn = hwy::HWY_NAMESPACE;
    if constexpr (together == 1) {
      return hn::LoadU(d, at + column);
    } else {
      const hn::RebindToUnsigned<D> u32;
      const auto pair = hn::LoadU(u32, at + column);
      if constexpr (row == 0) return hn::BitCast(d, hn::ShiftLeft<16>(pair));
      return hn::BitCast(d, hn::And(pair, hn::Set(u32, 0xffff0000u)));
    }
  }
};
using FloatRows = PanelRows<float>;
using PairRows = PanelRows<std::uint32_t>;

/// sum[r][v] += a(r, k) b[k][v] for one k, the row `part` of those that stand together in b. Goes on to the
/// next k of a.
template <int part, bool transposed, int R, int vectors, class D, class B>
HWY_INLINE void add_terms(D d, hwy::HWY_NAMESPACE::Vec<D> (&sum)[R][vectors], const float* HWY_RESTRICT& row,
                          std::int64_t lda, const B& b) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int lanes = static_cast<int>(hn::MaxLanes(d));
  hn::Vec<D> x[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) x[v] = b.template load<part>(d, v * lanes);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const hn::Vec<D> w = hn::Set(d, transposed ? row[r] : row[r * lda]);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[r][v] = hn::MulAdd(w, x[v], sum[r][v]);
  }
  row += transposed ? lda : 1;
}

/// Where a tile's sums go: into rows `to`, as (earlier sums + sums + bias) · factor + residual, as far as
/// these are not null. `earlier` has rows of 64 floats; it and the residual may be the destination itself.
struct TileEnd {
  float* to;
  std::int64_t stride;
  const float* earlier = nullptr;
  const float* bias = nullptr;
  const float* factor = nullptr;
  std::int64_t factor_stride = 0;
  const float* residual = nullptr;
  std::int64_t residual_stride = 0;

  /// Into rows of 64 floats, or, where `add`, onto what they hold.
  static TileEnd sums(float* rows, bool add) {
    return {.to = rows, .stride = 64, .earlier = add ? rows : nullptr};
  }

  template <class D, class V>
  HWY_INLINE void operator()(D d, V sum, std::int64_t row, std::int64_t column) const {
    namespace hn = hwy::HWY_NAMESPACE;
    if (earlier != nullptr) sum = hn::Add(hn::LoadU(d, earlier + row * 64 + column), sum);
    if (bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, bias + column));
    if (factor != nullptr) sum = hn::Mul(sum, hn::LoadU(d, factor + row * factor_stride + column));
    if (residual != nullptr) sum = hn::Add(sum, hn::LoadU(d, residual + row * residual_stride + column));
    hn::StoreU(sum, d, to + row * stride + column);
  }
};

/// end(d, Σ_k a(r, k) b[k][j …], r, j) for r < R and at least all j < columns ≤ 64, vector by vector. a(r, k)
/// lies at a[r · lda + k], or, where `transposed`, at a[k · lda + r]. Up to 64 columns of `end` are written.
template <int R, int vectors, bool transposed, class B>
HWY_NOINLINE void tile_product(int columns, const TileEnd& end, const float* HWY_RESTRICT a, std::int64_t lda,
                               const B& b, std::int64_t inner) {
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
    B column = b.from(j);
    const float* HWY_RESTRICT row = a;
    for (std::int64_t k = 0; k + B::together <= inner; k += B::together) {
      add_terms<0, transposed>(d, sum, row, lda, column);
      if constexpr (B::together == 2) add_terms<1, transposed>(d, sum, row, lda, column);
      column.next();
    }
    if constexpr (B::together == 2) {
      if (inner % 2 != 0) add_terms<0, transposed>(d, sum, row, lda, column);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) end(d, sum[r][v], r, j + v * lanes);
    }
  }
}

template <int R, bool transposed, class B>
HWY_INLINE void tile_product(int columns, const TileEnd& end, const float* a, std::int64_t lda, const B& b,
                             std::int64_t inner) {
  constexpr int lanes =
      static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::CappedTag<float, 16>()));
  if constexpr (lanes == 16 || R <= 3) {
    if (lanes < 16 || columns > 2 * lanes)
      return tile_product<R, 4, transposed>(columns, end, a, lda, b, inner);
  }
  tile_product<R, 2, transposed>(columns, end, a, lda, b, inner);
}

/// The same for a number of rows known only at run time, 1 … tile_rows.
template <bool transposed, class B>
HWY_INLINE void tile_product(int rows, int columns, const TileEnd& end, const float* a, std::int64_t lda,
                             const B& b, std::int64_t inner) {
  for_tile_rows(rows, [&](auto count) HWY_ATTR {
    tile_product<decltype(count)::value, transposed>(columns, end, a, lda, b, inner);
  });
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
