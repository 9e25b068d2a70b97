// Products of small row-major f32 matrices that lie in the caches, for the tiles of attention; one source for
// every instruction set. Include it inside a file that is compiled by hwy/foreach_target.h.
//
// Every sum runs over its depth in order with one multiply-add a term, so an element's bits depend neither on
// the column at which it lies nor on how many columns are computed with it.
//
// Rows are computed in blocks of `kRowBlock`, columns in whole vectors: buffers have their rows padded to a
// multiple of kRowBlock and their leading dimension to one of `kPad`, and start at 64-byte boundaries. A
// family with other blocks (softmax) makes its products of `Accumulators` and `for_vector_groups` itself.

#if defined(LINNET_ATTENTION_TILES_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_TILES_GEMM_INL_H_
#undef LINNET_ATTENTION_TILES_GEMM_INL_H_
#else
#define LINNET_ATTENTION_TILES_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "attention/tiles/ahead-inl.h"
#include "attention/tiles/fade.h"
#include "hwy/highway.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vec32 = hn::Vec<F32>;

constexpr std::size_t kPad = 16;
constexpr std::size_t kRowBlock = 8;

// Accumulators must fill the latency of two multiply-add units and leave registers for a row of the right
// factor: 16 or 24 of the 32 registers of AVX-512, 8 of the 16 of older sets.
#if HWY_TARGET <= HWY_AVX3
constexpr int kMaxVectors = 4;
template <int kVectors>
constexpr int kRegisterRows = kVectors == 4 ? 4 : 8;
#else
constexpr int kMaxVectors = 2;
template <int kVectors>
constexpr int kRegisterRows = kVectors == 2 ? 4 : 8;
#endif

/// At least how often a product of `rows` by `columns` over `depth` fetches ahead.
HWY_INLINE std::size_t fetches_of(std::size_t rows, std::size_t columns, std::size_t depth,
                                  std::size_t steps) {
  const std::size_t panel = kMaxVectors * hn::Lanes(F32());
  return (columns + panel - 1) / panel * (rows / (columns >= panel ? 4 : kRowBlock)) * (depth / steps);
}

/// How the left factor lies in memory: element (row, k) at a[row·ld + k], or at a[k·ld + row].
enum class Left { plain, transposed };

template <Left kLeft>
HWY_INLINE const float* left_at(const float* a, std::size_t ld, std::size_t row, std::size_t k) {
  return kLeft == Left::plain ? a + row * ld + k : a + k * ld + row;
}

/// sum = fade · sum + term, where `rest` keeps what the additions so far rounded off (Kahan 1965).
HWY_INLINE void collect_vector(float* HWY_RESTRICT sum, float* HWY_RESTRICT rest, Vec32 term, Vec32 fade) {
  const F32 d;
  const Vec32 old = hn::Mul(fade, hn::Load(d, sum));
  const Vec32 wanted = hn::NegMulAdd(fade, hn::Load(d, rest), term);
  const Vec32 next = hn::Add(old, wanted);
  hn::Store(hn::Sub(hn::Sub(next, old), wanted), d, rest);
  hn::Store(next, d, sum);
}

/// The same, where `rest` also keeps what the product with sum rounds off.
HWY_INLINE void collect_vector(float* HWY_RESTRICT sum, float* HWY_RESTRICT rest, Vec32 term, Fade fade) {
  const F32 d;
  const Vec32 all = hn::Load(d, sum), old = hn::Mul(hn::Set(d, fade.kept), all);
  const Vec32 missing = hn::NegMulAdd(hn::Set(d, fade.factor), hn::Load(d, rest), term);
  const Vec32 wanted = hn::NegMulAdd(hn::Set(d, fade.lost), all, missing);
  const Vec32 next = hn::Add(old, wanted);
  const auto small = hn::Lt(hn::Abs(all), hn::Set(d, Fade::least));
  hn::Store(hn::IfThenZeroElse(small, hn::Sub(hn::Sub(next, old), wanted)), d, rest);
  hn::Store(hn::IfThenElse(small, hn::MulAdd(hn::Set(d, fade.factor), all, term), next), d, sum);
}

/// How a product that assigns C ends: each row times its factor where there are any, past the caches where
/// asked.
struct Finish {
  const float* factors = nullptr;  ///< [rows]
  bool stream = false;

  Finish from(std::size_t row) const { return {factors != nullptr ? factors + row : nullptr, stream}; }
};

/// kRows rows of kVectors vectors, held in registers.
template <int kRows, int kVectors>
struct Accumulators {
  Vec32 sum[kRows][kVectors];

  HWY_INLINE void clear() {
    const F32 d;
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }

  /// Begins with what c holds.
  HWY_INLINE void load(const float* c, std::size_t ldc) {
    const F32 d;
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, c + r * ldc + v * hn::Lanes(d));
  }

  /// Begins with what c holds times a factor for each column.
  HWY_INLINE void load_scaled(const float* c, std::size_t ldc, const float* factor) {
    const F32 d;
    load(c, ldc);
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = hn::Mul(sum[r][v], hn::Load(d, factor + v * hn::Lanes(d)));
  }

  /// Adds a column of the left factor times a row of the right one, for the rows from kFirst to kLast and the
  /// vectors from kFirstVector to kLastVector.
  template <Left kLeft, int kFirst = 0, int kLast = kRows - 1, int kFirstVector = 0,
            int kLastVector = kVectors - 1>
  HWY_INLINE void add_outer(const float* HWY_RESTRICT a, std::size_t lda, const float* HWY_RESTRICT b) {
    const F32 d;
    Vec32 right[kVectors];
#pragma GCC unroll 8
    for (int v = kFirstVector; v <= kLastVector; ++v) right[v] = hn::Load(d, b + v * hn::Lanes(d));
#pragma GCC unroll 8
    for (int r = kFirst; r <= kLast; ++r) {
      const Vec32 left = hn::Set(d, *left_at<kLeft>(a, lda, r, 0));
#pragma GCC unroll 8
      for (int v = kFirstVector; v <= kLastVector; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }

  /// Adds the terms from k to `end` to the vectors from kFirstVector to kLastVector.
  template <Left kLeft, int kFirstVector, int kLastVector>
  HWY_INLINE void add_terms(const float* HWY_RESTRICT a, std::size_t lda, const float* HWY_RESTRICT b,
                            std::size_t ldb, std::size_t k, std::size_t end, Ahead* ahead) {
    while (k < end) {
      if (ahead != nullptr) ahead->fetch();
      const std::size_t part = ahead != nullptr ? std::min(k + Ahead::kSteps, end) : end;
      for (; k < part; ++k)
        add_outer<kLeft, 0, kRows - 1, kFirstVector, kLastVector>(left_at<kLeft>(a, lda, 0, k), lda,
                                                                  b + k * ldb);
    }
  }

  /// Adds the terms before first[kVectors − 1]: vector v takes those from first[v] on, which never decrease.
  template <Left kLeft, int kLastVector = 0>
  HWY_INLINE void add_rise(const float* HWY_RESTRICT a, std::size_t lda, const float* HWY_RESTRICT b,
                           std::size_t ldb, const std::size_t* first, Ahead* ahead) {
    if constexpr (kLastVector + 1 < kVectors) {
      add_terms<kLeft, 0, kLastVector>(a, lda, b, ldb, first[kLastVector], first[kLastVector + 1], ahead);
      add_rise<kLeft, kLastVector + 1>(a, lda, b, ldb, first, ahead);
    }
  }

  /// Adds the terms from k on: vector v takes those before depth[v], and the depths never decrease.
  template <Left kLeft, int kFirstVector = 0>
  HWY_INLINE void add_stairs(const float* HWY_RESTRICT a, std::size_t lda, const float* HWY_RESTRICT b,
                             std::size_t ldb, std::size_t k, const std::size_t* depth, Ahead* ahead) {
    add_terms<kLeft, kFirstVector, kVectors - 1>(a, lda, b, ldb, k, depth[kFirstVector], ahead);
    if constexpr (kFirstVector + 1 < kVectors)
      add_stairs<kLeft, kFirstVector + 1>(a, lda, b, ldb, std::max(k, depth[kFirstVector]), depth, ahead);
  }

  template <Left kLeft>
  HWY_INLINE void add(const float* HWY_RESTRICT a, std::size_t lda, const float* HWY_RESTRICT b,
                      std::size_t ldb, std::size_t depth, Ahead* ahead) {
    std::size_t k = 0;
    for (; k + Ahead::kSteps <= depth; k += Ahead::kSteps) {
      if (ahead != nullptr) ahead->fetch();
#pragma GCC unroll 4
      for (std::size_t i = 0; i < Ahead::kSteps; ++i)
        add_outer<kLeft>(left_at<kLeft>(a, lda, 0, k + i), lda, b + (k + i) * ldb);
    }
    for (; k < depth; ++k) add_outer<kLeft>(left_at<kLeft>(a, lda, 0, k), lda, b + k * ldb);
  }

  /// The kRows × kRows block on the diagonal of a left factor that is 0 above it: what lies there is not
  /// touched.
  template <Left kLeft, int k = 0>
  HWY_INLINE void add_lower(const float* HWY_RESTRICT a, std::size_t lda, const float* HWY_RESTRICT b,
                            std::size_t ldb) {
    add_outer<kLeft, k, kRows - 1>(left_at<kLeft>(a, lda, 0, k), lda, b + k * ldb);
    if constexpr (k + 1 < kRows) add_lower<kLeft, k + 1>(a, lda, b, ldb);
  }

  /// The same for one that is 0 below it.
  template <Left kLeft, int k = 0>
  HWY_INLINE void add_upper(const float* HWY_RESTRICT a, std::size_t lda, const float* HWY_RESTRICT b,
                            std::size_t ldb) {
    add_outer<kLeft, 0, k>(left_at<kLeft>(a, lda, 0, k), lda, b + k * ldb);
    if constexpr (k + 1 < kRows) add_upper<kLeft, k + 1>(a, lda, b, ldb);
  }

  HWY_INLINE void store(float* HWY_RESTRICT c, std::size_t ldc) const {
    const F32 d;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, c + r * ldc + v * hn::Lanes(d));
  }

  HWY_INLINE void store(float* HWY_RESTRICT c, std::size_t ldc, Finish finish) const {
    const F32 d;
    if (finish.factors == nullptr && !finish.stream) return store(c, ldc);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec32 factor = hn::Set(d, finish.factors != nullptr ? finish.factors[r] : 1.0f);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* to = c + r * ldc + v * hn::Lanes(d);
        const Vec32 value = hn::Mul(factor, sum[r][v]);
        finish.stream ? hn::Stream(value, d, to) : hn::Store(value, d, to);
      }
    }
  }

  HWY_INLINE void add_to(float* HWY_RESTRICT c, std::size_t ldc) const {
    const F32 d;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* to = c + r * ldc + v * hn::Lanes(d);
        hn::Store(hn::Add(hn::Load(d, to), sum[r][v]), d, to);
      }
  }

  /// c = fade · c + the sums: `fade` is a vector, or a Fade.
  template <class F>
  HWY_INLINE void collect(float* HWY_RESTRICT c, float* HWY_RESTRICT rest, std::size_t ldc, F fade) const {
    const F32 d;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const std::size_t at = r * ldc + v * hn::Lanes(d);
        collect_vector(c + at, rest + at, sum[r][v], fade);
      }
  }
};

/// Calls body(N, v) for groups of N vectors, at most kMost, that begin at vector v of `vectors`; N is a
/// compile-time constant.
template <int kMost, class Body>
HWY_INLINE void for_vector_groups(std::size_t vectors, const Body& body) {
  static_assert(2 <= kMost && kMost <= 4);
  for (std::size_t v = 0; v < vectors;) {
    const std::size_t left = vectors - v;
    // No group of one behind a full one: 3 + 2 rather than 4 + 1.
    const std::size_t n = left == kMost + 1 ? kMost - 1 : std::min<std::size_t>(left, kMost);
    if constexpr (kMost >= 4) {
      if (n == 4) body(std::integral_constant<int, 4>(), v);
    }
    if constexpr (kMost >= 3) {
      if (n == 3) body(std::integral_constant<int, 3>(), v);
    }
    if (n == 2) body(std::integral_constant<int, 2>(), v);
    if (n == 1) body(std::integral_constant<int, 1>(), v);
    v += n;
  }
}

/// Calls product.panel<kVectors>(column) for panels that cover `columns`, a multiple of the vector length.
template <class Product>
HWY_INLINE void for_each_panel(const Product& product, std::size_t columns) {
  const std::size_t lanes = hn::Lanes(F32());
  for_vector_groups<kMaxVectors>(columns / lanes, [&](auto vectors, std::size_t v) HWY_ATTR {
    product.template panel<decltype(vectors)::value>(v * lanes);
  });
}

/// What a product does with C: assigns it, adds to it, or adds to fade · C, keeping in `rest` what that
/// rounds off, but for what the product with fade does, or with that.
enum class Into { assign, add, collect, fade };

/// Whether a product has whole blocks of rows alone, or any number: rows that fill no block are then computed
/// one by one, with the same bits.
enum class Blocks { whole, any };

/// C = A B, C += A B or C = fade · C + A B: C and rest [rows, columns], A [rows, depth], B [depth, columns].
template <Left kLeft, Into kInto = Into::assign, Blocks kBlocks = Blocks::whole>
struct Multiply {
  float* c;
  std::size_t ldc;
  const float* a;
  std::size_t lda;
  const float* b;
  std::size_t ldb;
  std::size_t rows, depth;
  Ahead* ahead = nullptr;
  Finish finish = {};
  float* rest = nullptr;
  Fade fade = {};

  template <int kVectors>
  HWY_NOINLINE void panel(std::size_t column) const {
    constexpr int kRows = kRegisterRows<kVectors>;
    std::size_t row = 0;
    for (; row + kRows <= rows; row += kRows) block<kRows, kVectors>(row, column);
    if constexpr (kBlocks == Blocks::any)
      for (; row < rows; ++row) block<1, kVectors>(row, column);
  }

  /// The same product into C in another way.
  template <Into kOther>
  Multiply<kLeft, kOther, kBlocks> as(float* its_rest = nullptr, Fade its_fade = {}) const {
    return {c, ldc, a, lda, b, ldb, rows, depth, ahead, {}, its_rest, its_fade};
  }

 private:
  template <int kRows, int kVectors>
  HWY_INLINE void block(std::size_t row, std::size_t column) const {
    Accumulators<kRows, kVectors> tile;
    tile.clear();
    tile.template add<kLeft>(left_at<kLeft>(a, lda, row, 0), lda, b + column, ldb, depth, ahead);
    const std::size_t at = row * ldc + column;
    if constexpr (kInto == Into::assign) tile.store(c + at, ldc, finish.from(row));
    if constexpr (kInto == Into::add) tile.add_to(c + at, ldc);
    if constexpr (kInto == Into::collect) tile.collect(c + at, rest + at, ldc, hn::Set(F32(), fade.factor));
    if constexpr (kInto == Into::fade) tile.collect(c + at, rest + at, ldc, fade);
  }
};

/// C = A B for the square C [rows, rows] on and below the diagonal; what is above it holds anything
/// afterwards.
struct MultiplyLower {
  float* c;
  std::size_t ldc;
  const float* a;
  std::size_t lda;
  const float* b;
  std::size_t ldb;
  std::size_t rows, depth;
  Ahead* ahead = nullptr;

  HWY_NOINLINE void operator()() const {
    const std::size_t lanes = hn::Lanes(F32());
    for (std::size_t row = 0; row < rows; row += kRowBlock)
      for_each_panel(
          Multiply<Left::plain>{c + row * ldc, ldc, a + row * lda, lda, b, ldb, kRowBlock, depth, ahead},
          (row + kRowBlock + lanes - 1) / lanes * lanes);
  }
};

/// C = A B + T U: what a chunk takes from the state and what from itself. A [rows, depth] is plain; T [rows,
/// rows] is lower triangular and plain, or upper triangular and transposed (a lower triangle in memory,
/// either way), and only its triangle is read.
template <bool kUpper>
struct MultiplyWithTriangle {
  float* c;
  std::size_t ldc;
  const float* a;
  std::size_t lda;
  const float* b;
  std::size_t ldb;
  const float* t;
  std::size_t ldt;
  const float* u;
  std::size_t ldu;
  std::size_t rows, depth;
  Ahead* ahead = nullptr;
  Finish finish = {};

  template <int kVectors>
  HWY_NOINLINE void panel(std::size_t column) const {
    constexpr int kRows = kRegisterRows<kVectors>;
    for (std::size_t row = 0; row < rows; row += kRows) {
      Accumulators<kRows, kVectors> tile;
      tile.clear();
      tile.template add<Left::plain>(a + row * lda, lda, b + column, ldb, depth, ahead);
      const float* diagonal = t + row * ldt + row;
      const float* beside = u + row * ldu + column;
      if constexpr (kUpper) {
        tile.template add_upper<Left::transposed>(diagonal, ldt, beside, ldu);
        tile.template add<Left::transposed>(diagonal + kRows * ldt, ldt, beside + kRows * ldu, ldu,
                                            rows - row - kRows, ahead);
      } else {
        tile.template add<Left::plain>(t + row * ldt, ldt, u + column, ldu, row, ahead);
        tile.template add_lower<Left::plain>(diagonal, ldt, beside, ldu);
      }
      tile.store(c + row * ldc + column, ldc, finish.from(row));
    }
  }
};

/// to [columns, ldt] from [rows, ldf] transposed: `rows` is rounded up to a vector, `columns` to 4.
inline HWY_NOINLINE void transpose(float* HWY_RESTRICT to, std::size_t ldt, const float* HWY_RESTRICT from,
                                   std::size_t ldf, std::size_t rows, std::size_t columns) {
  kernels::HWY_NAMESPACE::transpose_tile(F32(), to, ldt, from, ldf, rows, columns);
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
