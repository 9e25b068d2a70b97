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
#include <span>
#include <type_traits>

#include "attention/softmax/tiles.h"
#include "attention/tiles/gemm-inl.h"
#include "attention/tiles/rows-inl.h"
#include "hwy/highway.h"
#include "kernels/simd_math-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::softmax::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
namespace tiles = linnet::HWY_NAMESPACE;
using tiles::Ahead;
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

// The same for products whose columns are a panel's queries: three vectors where there are many registers.
constexpr std::int64_t kPanelRowMultiple = kManyRegisters ? kRowsOf<3> : kRowMultiple;

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

/// c[r][n] = start + Σ_k A(r, k) b[k][n] for R rows and N vectors of columns, k from each vector's first term
/// to its depth; neither decreases, and the last first term does not lie behind the first depth. A(r, k) =
/// a[r · step + k], or a[k · step + r] where it is transposed.
template <int R, int N, Left kLeft, Start kStart>
HWY_INLINE void multiply_tile(const std::size_t* first, const std::size_t* depth, const float* a,
                              std::int64_t step, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                              const float* factor, Ahead* ahead = nullptr) {
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  tiles::Accumulators<R, N> tile;
  if constexpr (kStart == Start::zero) tile.clear();
  if constexpr (kStart == Start::add) tile.load(c, size(ldc));
  if constexpr (kStart == Start::rescale) tile.load_scaled(c, size(ldc), factor);
  tile.template add_rise<kLeft>(a, size(step), b, size(ldb), first, ahead);
  tile.template add_stairs<kLeft>(a, size(step), b, size(ldb), first[N - 1], depth, ahead);
  tile.store(c, size(ldc));
}

/// Fetches rows that lie apart; the hardware foresees the others, or they lie in the caches already.
HWY_INLINE void fetch_apart(Ahead& ahead, const InputRows& rows, Mask::Interval range) {
  if (rows.stride != rows.columns) tiles::fetch(ahead, rows, range);
}

/// The same, or those at the `places` of this range.
HWY_INLINE void fetch_apart(Ahead& ahead, const InputRows& rows, const std::int64_t* places,
                            Mask::Interval range) {
  if (places == nullptr) return fetch_apart(ahead, rows, range);
  ahead.add(rows.data, rows.stride * rows.element(), static_cast<std::size_t>(range.end - range.begin),
            static_cast<std::size_t>(rows.columns * rows.element()), places + range.begin);
}

/// Part `part` of `parts` of so many rows.
HWY_INLINE Mask::Interval share_of(std::int64_t rows, std::int64_t part, std::int64_t parts) {
  return {rows * part / parts, rows * (part + 1) / parts};
}

/// Has the products of panel p, of `panels`, fetch its share of the rows to come.
HWY_INLINE void fetch_to_come(Ahead& ahead, std::span<const RowsToCome> to_come, std::int64_t p,
                              std::int64_t panels) {
  for (const auto& [rows, count, places] : to_come)
    fetch_apart(ahead, rows, places, share_of(count, p, panels));
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
                         std::int64_t step, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                         Ahead* ahead = nullptr) {
  for_groups(vectors, [&](auto group, std::int64_t v) HWY_ATTR {
    constexpr int N = decltype(group)::value;
    constexpr int R = kRowsOf<N>;
    for (std::int64_t r = 0; r < rows; r += R) {
      const Span terms = span(r, R);
      std::size_t first[N], depth[N];
      std::fill_n(first, N, static_cast<std::size_t>(terms.begin));
      std::fill_n(depth, N, static_cast<std::size_t>(terms.end));
      multiply_tile<R, N, kLeft, kStart>(first, depth, a + r * (kLeft == Left::plain ? step : 1), step,
                                         b + v * kLanes, ldb, c + r * ldc + v * kLanes, ldc, nullptr, ahead);
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

/// Whether rows [count, width] of a tile hold no infinity and no NaN, found out once for all of them.
class FiniteRows {
 public:
  FiniteRows(const float* rows, std::int64_t count, std::int64_t width)
      : rows_(rows), count_(count), width_(width) {}

  /// Whether rows `some` do.
  HWY_INLINE bool has(Span some) {
    if (some.begin >= some.end) return true;
    if (!known_) all_ = all_finite(rows_, count_ * width_);
    known_ = true;
    return all_ || all_finite(rows_ + some.begin * width_, (some.end - some.begin) * width_);
  }

 private:
  const float* rows_;
  std::int64_t count_, width_;
  bool known_ = false, all_ = false;
};

/// Floats of working memory that read_panel needs for rows of `dim` numbers. Rows there begin at multiples of
/// 16 bytes.
constexpr std::int64_t panel_room(std::int64_t dim) { return kPanel * round_up(dim, 4); }

/// A panel [dim, 48] from up to 48 rows [count, width] that begin at multiples of 16 bytes; the memory of all
/// 48 is read. Absent rows are zero.
HWY_INLINE void transpose_rows(std::int64_t count, std::int64_t dim, const float* rows, std::int64_t width,
                               float* panel) {
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::int64_t whole = dim / 4 * 4;
  kernels::HWY_NAMESPACE::transpose_tile(D(), panel, size(kPanel), rows, size(width), size(kPanel),
                                         size(whole));
  for (std::int64_t e = whole; e < dim; ++e)
    for (std::int64_t i = 0; i < count; ++i) panel[e * kPanel + i] = rows[i * width + e];
  for (std::int64_t e = 0; e < dim && count < kPanel; ++e)
    std::fill(panel + e * kPanel + count, panel + (e + 1) * kPanel, 0.0f);
}

/// The same from scale times the caller's rows. `room` is memory for panel_room(dim) floats.
HWY_INLINE void read_panel(std::int64_t count, std::int64_t dim, const InputRows& rows, float* panel,
                           float scale, float* room) {
  const std::int64_t width = round_up(dim, 4);
  pack_rows(room, width, rows, count, dim);
  for (std::int64_t i = 0; i < count * width; ++i) room[i] *= scale;
  transpose_rows(count, dim, room, width, panel);
}

/// The first `count` rows, or those at `places`, = factor[i] · a panel [dim, 48], whose memory is read up to
/// a whole vector of rows. `room` is memory for 48 rows of whole vectors. `stream` asks for stores past the
/// caches, where rows are whole vectors.
HWY_INLINE void write_panel(std::int64_t count, std::int64_t dim, const float* panel, const float* factor,
                            const OutputRows& rows, const std::int64_t* places, bool stream, float* room) {
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::int64_t width = round_up(dim, kLanes);
  kernels::HWY_NAMESPACE::transpose_tile(D(), room, size(width), panel, size(kPanel), size(width),
                                         size(round_up(count, 4)));
  stream = stream && tiles::whole_vectors(rows);
  const auto place = [&](std::int64_t i) { return places != nullptr ? places[i] : i; };
  for (std::int64_t i = 0; i < count; ++i) {
    if (!stream) tiles::fetch_row(rows, place(std::min(i + tiles::kRowsAhead, count - 1)));
    store_row(rows, place(i), room + i * width, factor[i], stream);
  }
  if (stream) hwy::FlushStream();
}

}  // namespace linnet::softmax::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
