// Micro-kernels of the softmax family, one source for every instruction set: small matrix products with their
// accumulators in registers, transposes. Include it inside a file that hwy/foreach_target.h
// compiles.

#if defined(LINNET_ATTENTION_SOFTMAX_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_SOFTMAX_TILE_INL_H_
#undef LINNET_ATTENTION_SOFTMAX_TILE_INL_H_
#else
#define LINNET_ATTENTION_SOFTMAX_TILE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "attention/softmax/tiles.h"
#include "attention/tiles/gemm-inl.h"
#include "attention/tiles/rows-inl.h"
#include "hwy/highway.h"
#include "kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::softmax::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
namespace tiles = linnet::HWY_NAMESPACE;
using tiles::all_finite;
using tiles::Left;
using tiles::pack_rows;
using tiles::store_row;

constexpr std::int64_t kLanes = hn::MaxLanes(D());

// Accumulators fill the registers: 24 of 32 where there are 32, else 12 of 16.
constexpr bool kManyRegisters = HWY_MAX_BYTES == 64;
constexpr int kMaxGroup = kManyRegisters ? 4 : 3;
constexpr std::int64_t kBlockRows = kManyRegisters ? 8 : 4;
template <int N>
constexpr int kRowsOf = kManyRegisters ? (N == 4 ? 6 : 8)
                                       : (N == 3   ? 4
                                          : N == 2 ? 6
                                                   : 8);

// What the rows of a buffer are rounded up to: products compute kRowsOf of them at a time. Where they begin
// at any multiple of kBlockRows, kRowSlack more are read and written.
constexpr std::int64_t kRowMultiple = 24;
constexpr std::int64_t kRowSlack = 8;

constexpr std::int64_t round_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// Calls body(N, v) for groups of N vectors that begin at vector v, N a compile-time constant.
template <class Body>
HWY_INLINE void for_groups(std::int64_t vectors, const Body& body) {
  tiles::for_vector_groups<kMaxGroup>(static_cast<std::size_t>(vectors), body);
}

/// What a product begins with: nothing, what c holds, or what c holds times a factor for each column.
enum class Start { zero, add, rescale };

/// c[r][n] = start + Σ_k A(r, k) b[k][n] for R rows and N vectors of columns, k from `first` to each vector's
/// depth; the depths never decrease. A(r, k) = a[r · step + k], or a[k · step + r] where it is transposed.
template <int R, int N, Left kLeft, Start kStart>
HWY_INLINE void multiply_tile(std::int64_t first, const std::size_t* depth, const float* a, std::int64_t step,
                              const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                              const float* factor) {
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  tiles::Accumulators<R, N> tile;
  if constexpr (kStart == Start::zero) tile.clear();
  if constexpr (kStart == Start::add) tile.load(c, size(ldc));
  if constexpr (kStart == Start::rescale) tile.load_scaled(c, size(ldc), factor);
  tile.template add_stairs<kLeft>(a, size(step), b, size(ldb), size(first), depth);
  tile.store(c, size(ldc));
}

/// Terms begin … end of a sum.
struct Span {
  std::int64_t begin, end;
};

/// c[r][n] = start + Σ_k A(r, k) b[k][n] for rows of `vectors` vectors, where span(r, R) says which terms the
/// rows r … r + R take. Rows are rounded up, to a multiple of kRowMultiple at most: what a and c hold there
/// is read and written, and means nothing.
template <Left kLeft, Start kStart, class SpanOf>
HWY_INLINE void multiply(std::int64_t rows, std::int64_t vectors, const SpanOf& span, const float* a,
                         std::int64_t step, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  for_groups(vectors, [&](auto group, std::int64_t v) HWY_ATTR {
    constexpr int N = decltype(group)::value;
    constexpr int R = kRowsOf<N>;
    for (std::int64_t r = 0; r < rows; r += R) {
      const Span terms = span(r, R);
      std::size_t depth[N];
      std::fill_n(depth, N, static_cast<std::size_t>(terms.end));
      multiply_tile<R, N, kLeft, kStart>(terms.begin, depth, a + r * (kLeft == Left::plain ? step : 1), step,
                                         b + v * kLanes, ldb, c + r * ldc + v * kLanes, ldc, nullptr);
    }
  });
}

/// exp(x) for x ≤ 0 with a relative error below 4e-7, exactly 0 below -86.9; NaN gives NaN. Cheaper than
/// fast_exp.
HWY_INLINE V exp_not_positive(V x) {
  const D d;
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504089f), magic);
  const V r = hn::NegMulAdd(hn::Sub(shifted, magic), hn::Set(d, 0.693147180560f), x);
  V p = hn::MulAdd(hn::Set(d, 0.008297619576f), r, hn::Set(d, 0.04191562923f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666757654f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999889266f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.9999996911f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.000000072f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::BitCast(di, shifted), hn::Set(di, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -86.9f)), hn::Mul(p, hn::BitCast(d, exponent)));
}

/// to[c][r] = scale · from[r][c] for a block of up to 4 rows and 4 columns.
HWY_INLINE void transpose_block(std::int64_t rows, std::int64_t columns, const float* from,
                                std::int64_t from_stride, float* to, std::int64_t to_stride, float scale) {
#if HWY_TARGET != HWY_SCALAR
  if (rows == 4 && columns == 4) {
    const hn::FixedTag<float, 4> d4;
    const auto factor = hn::Set(d4, scale);
    const auto r0 = hn::LoadU(d4, from), r1 = hn::LoadU(d4, from + from_stride);
    const auto r2 = hn::LoadU(d4, from + 2 * from_stride), r3 = hn::LoadU(d4, from + 3 * from_stride);
    const auto lower02 = hn::InterleaveLower(d4, r0, r2), lower13 = hn::InterleaveLower(d4, r1, r3);
    const auto upper02 = hn::InterleaveUpper(d4, r0, r2), upper13 = hn::InterleaveUpper(d4, r1, r3);
    hn::StoreU(hn::Mul(factor, hn::InterleaveLower(d4, lower02, lower13)), d4, to);
    hn::StoreU(hn::Mul(factor, hn::InterleaveUpper(d4, lower02, lower13)), d4, to + to_stride);
    hn::StoreU(hn::Mul(factor, hn::InterleaveLower(d4, upper02, upper13)), d4, to + 2 * to_stride);
    hn::StoreU(hn::Mul(factor, hn::InterleaveUpper(d4, upper02, upper13)), d4, to + 3 * to_stride);
    return;
  }
#endif
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = scale * from[r * from_stride + c];
  }
}

// Both ways walk along the rows of the caller's tensor, whose stride may put all of them into the same few
// lines of a cache. `room` is memory for 48 rows of f32.

/// A panel of up to 48 rows [count, dim] as [dim, 48]; absent rows are zero.
HWY_INLINE void read_panel(std::int64_t count, std::int64_t dim, InputRows rows, float* panel, float scale,
                           float* room) {
  if (rows.half()) {
    pack_rows(room, dim, rows, count, dim);
    rows = dense_rows(room, dim);
  }
  if (count < kPanel) std::fill_n(panel, dim * kPanel, 0.0f);
  const float* data = rows.floats();
  for (std::int64_t i = 0; i < count; i += 4) {
    for (std::int64_t k = 0; k < 4; ++k) tiles::fetch_row(rows, i + tiles::kRowsAhead + k);
    for (std::int64_t e = 0; e < dim; e += 4) {
      transpose_block(std::min<std::int64_t>(4, count - i), std::min<std::int64_t>(4, dim - e),
                      data + i * rows.stride + e, rows.stride, panel + e * kPanel + i, kPanel, scale);
    }
  }
}

/// A panel [dim, 48] as its first `count` rows [count, dim].
HWY_INLINE void write_panel(std::int64_t count, std::int64_t dim, const float* panel, const OutputRows& rows,
                            float* room) {
  const bool narrow = rows.half();
  float* data = narrow ? room : rows.floats();
  const std::int64_t stride = narrow ? dim : rows.stride;
  for (std::int64_t i = 0; i < count; i += 4) {
    for (std::int64_t k = 0; k < 4; ++k) tiles::fetch_row(rows, i + tiles::kRowsAhead + k);
    for (std::int64_t m = 0; m < dim; m += 4) {
      transpose_block(std::min<std::int64_t>(4, dim - m), std::min<std::int64_t>(4, count - i),
                      panel + m * kPanel + i, kPanel, data + i * stride + m, stride, 1.0f);
    }
  }
  for (std::int64_t i = 0; narrow && i < count; ++i) store_row(rows, i, room + i * dim);
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
