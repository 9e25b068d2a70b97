// Micro-kernels of the softmax family, one source for every instruction set: small matrix products with their
// accumulators in registers, transposes, packing. Include it inside a file that hwy/foreach_target.h
// compiles.

#if defined(LINNET_ATTENTION_SOFTMAX_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_SOFTMAX_TILE_INL_H_
#undef LINNET_ATTENTION_SOFTMAX_TILE_INL_H_
#else
#define LINNET_ATTENTION_SOFTMAX_TILE_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "attention/softmax/tiles.h"
#include "hwy/highway.h"
#include "kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::softmax::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr std::int64_t kLanes = hn::MaxLanes(D());

// Accumulators fill the registers: 24 of 32 where there are 32, else 12 of 16.
constexpr bool kManyRegisters = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM;
constexpr int kMaxGroup = kManyRegisters ? 4 : 3;
template <int N>
constexpr int kRowsOf = N == 1 ? 12 : (kManyRegisters ? 24 : 12) / N;

// Rows are computed kRowsOf at a time, so that buffers have up to this multiple.
constexpr std::int64_t kRowMultiple = 24;

constexpr std::int64_t round_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// Calls body(N, v) for groups of N vectors that begin at vector v, N a compile-time constant.
template <class Body>
HWY_INLINE void ForGroups(std::int64_t vectors, const Body& body) {
  std::int64_t v = 0;
  while (v < vectors) {
    const std::int64_t left = vectors - v;
    // No group of one behind a full one: 3 + 2 rather than 4 + 1.
    const std::int64_t n = left == kMaxGroup + 1 ? kMaxGroup - 1 : std::min<std::int64_t>(left, kMaxGroup);
    if constexpr (kMaxGroup == 4) {
      if (n == 4) body(std::integral_constant<int, kMaxGroup>(), v);
    }
    if (n == 3) body(std::integral_constant<int, 3>(), v);
    if (n == 2) body(std::integral_constant<int, 2>(), v);
    if (n == 1) body(std::integral_constant<int, 1>(), v);
    v += n;
  }
}

/// What a product begins with: nothing, what c holds, or what c holds times a factor for each column.
enum class Start { zero, add, rescale };

/// How A lies: A(r, k) = a[r · step + k], or a[k · step + r].
enum class Layout { rows, columns };

/// c[r][n] = start + Σ_k A(r, k) b[k][n] for R rows and N vectors of columns.
template <int R, int N, Layout kLayout, Start kStart>
HWY_INLINE void MultiplyTile(std::int64_t depth, const float* a, std::int64_t step, const float* b,
                             std::int64_t ldb, float* c, std::int64_t ldc, const float* factor) {
  const D d;
  V sum[R][N];
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) {
      if constexpr (kStart == Start::zero)
        sum[r][n] = hn::Zero(d);
      else
        sum[r][n] = hn::Load(d, c + r * ldc + n * kLanes);
      if constexpr (kStart == Start::rescale)
        sum[r][n] = hn::Mul(sum[r][n], hn::Load(d, factor + n * kLanes));
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    V column[N];
    for (int n = 0; n < N; ++n) column[n] = hn::Load(d, b + k * ldb + n * kLanes);
    for (int r = 0; r < R; ++r) {
      const V element = hn::Set(d, kLayout == Layout::rows ? a[r * step + k] : a[k * step + r]);
      for (int n = 0; n < N; ++n) sum[r][n] = hn::MulAdd(element, column[n], sum[r][n]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) hn::Store(sum[r][n], d, c + r * ldc + n * kLanes);
  }
}

/// The same for any number of rows and vectors. Rows are rounded up to a multiple of kRowMultiple at most:
/// what a and c hold there is read and written, and means nothing.
template <Layout kLayout, Start kStart>
HWY_INLINE void Multiply(std::int64_t rows, std::int64_t vectors, std::int64_t depth, const float* a,
                         std::int64_t step, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                         const float* factor = nullptr) {
  ForGroups(vectors, [&](auto group, std::int64_t v) HWY_ATTR {
    constexpr int N = decltype(group)::value;
    constexpr int R = kRowsOf<N>;
    const std::int64_t column = v * kLanes;
    for (std::int64_t r = 0; r < rows; r += R) {
      MultiplyTile<R, N, kLayout, kStart>(depth, a + r * (kLayout == Layout::rows ? step : 1), step,
                                          b + column, ldb, c + r * ldc + column, ldc, factor + column);
    }
  });
}

/// scores[j][i] = Σ_e rows[j][e] columns[e][i], in slices of e that stay in the first-level cache. The order
/// of the sum is the same wherever it is called, so that the backward pass meets the forward pass's scores
/// bit for bit.
HWY_INLINE void Scores(std::int64_t count, std::int64_t vectors, std::int64_t dim, const float* rows,
                       std::int64_t step, const float* columns, float* scores) {
  constexpr std::int64_t slice = 128;
  Multiply<Layout::rows, Start::zero>(count, vectors, std::min(dim, slice), rows, step, columns, kPanel,
                                      scores, kPanel);
  for (std::int64_t e = slice; e < dim; e += slice) {
    Multiply<Layout::rows, Start::add>(count, vectors, std::min(dim - e, slice), rows + e, step,
                                       columns + e * kPanel, kPanel, scores, kPanel);
  }
}

/// Lanes of a panel's vector v whose query sees the key that is `ahead` keys behind the panel's first query's
/// own.
HWY_INLINE hn::Mask<D> Sees(std::int64_t v, std::int64_t ahead) {
  const D d;
  return hn::Ge(hn::Iota(d, static_cast<float>(v * kLanes)), hn::Set(d, static_cast<float>(ahead)));
}

/// to[c][r] = scale · from[r][c].
HWY_INLINE void Transpose(std::int64_t rows, std::int64_t columns, const float* from,
                          std::int64_t from_stride, float* to, std::int64_t to_stride, float scale) {
  std::int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d4;
  const auto factor = hn::Set(d4, scale);
  for (; r + 4 <= rows; r += 4) {
    std::int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      const float* source = from + r * from_stride + c;
      const auto r0 = hn::LoadU(d4, source), r1 = hn::LoadU(d4, source + from_stride);
      const auto r2 = hn::LoadU(d4, source + 2 * from_stride), r3 = hn::LoadU(d4, source + 3 * from_stride);
      const auto lower02 = hn::InterleaveLower(d4, r0, r2), lower13 = hn::InterleaveLower(d4, r1, r3);
      const auto upper02 = hn::InterleaveUpper(d4, r0, r2), upper13 = hn::InterleaveUpper(d4, r1, r3);
      float* target = to + c * to_stride + r;
      hn::StoreU(hn::Mul(factor, hn::InterleaveLower(d4, lower02, lower13)), d4, target);
      hn::StoreU(hn::Mul(factor, hn::InterleaveUpper(d4, lower02, lower13)), d4, target + to_stride);
      hn::StoreU(hn::Mul(factor, hn::InterleaveLower(d4, upper02, upper13)), d4, target + 2 * to_stride);
      hn::StoreU(hn::Mul(factor, hn::InterleaveUpper(d4, upper02, upper13)), d4, target + 3 * to_stride);
    }
    for (; c < columns; ++c) {
      for (std::int64_t i = r; i < r + 4; ++i) to[c * to_stride + i] = scale * from[i * from_stride + c];
    }
  }
#endif
  for (; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = scale * from[r * from_stride + c];
  }
}

/// A panel of up to 48 rows [count, dim] as [dim, 48]; absent rows are zero.
HWY_INLINE void TransposePanel(std::int64_t count, std::int64_t dim, Rows rows, float* panel, float scale) {
  if (count < kPanel) std::memset(panel, 0, sizeof(float) * dim * kPanel);
  Transpose(count, dim, rows.data, rows.stride, panel, kPanel, scale);
}

/// Rows one after another, each filled up with zeros to `width`.
HWY_INLINE void PackRows(std::int64_t count, std::int64_t dim, Rows rows, float* to, std::int64_t width) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * width, rows.data + i * rows.stride, sizeof(float) * dim);
    std::memset(to + i * width + dim, 0, sizeof(float) * (width - dim));
  }
}

/// Whether no element is infinite or NaN.
HWY_INLINE bool AllFinite(const float* x, std::int64_t count) {
  const D d;
  V sums = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sums = hn::MulAdd(hn::LoadU(d, x + i), hn::Zero(d), sums);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < count; ++i) sum += x[i] * 0.0f;
  return sum == 0.0f;
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
