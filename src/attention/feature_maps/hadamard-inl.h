// Products with a block of Hadamard directions, a row at a time. Included like simd_math-inl.h.

#if defined(LINNET_ATTENTION_FEATURE_MAPS_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_FEATURE_MAPS_HADAMARD_INL_H_
#undef LINNET_ATTENTION_FEATURE_MAPS_HADAMARD_INL_H_
#else
#define LINNET_ATTENTION_FEATURE_MAPS_HADAMARD_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "attention/feature_maps/hadamard.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::random_maps::HWY_NAMESPACE {

/// What a row is multiplied by before the first transform, between them and after the last one, E numbers
/// each.
using Diagonals = std::array<const float*, kDiagonals + 1>;

#if HWY_TARGET != HWY_SCALAR

/// 1 in lanes whose index has no bit of `distance`, −1 in the others.
template <int distance>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> signs_of_pairs() {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  HWY_ALIGN float signs[hwy::HWY_NAMESPACE::MaxLanes(d)];
  for (std::size_t i = 0; i < hwy::HWY_NAMESPACE::MaxLanes(d); ++i)
    signs[i] = (i & distance) != 0 ? -1.0f : 1.0f;
  return hwy::HWY_NAMESPACE::Load(d, signs);
}

/// The lanes that are `distance` apart exchanged.
template <int distance, class V>
HWY_INLINE V exchanged(V v) {
  const hwy::HWY_NAMESPACE::DFromV<V> d;
  if constexpr (distance == 1)
    return hwy::HWY_NAMESPACE::Shuffle2301(v);
  else if constexpr (distance == 2)
    return hwy::HWY_NAMESPACE::Shuffle1032(v);
  else if constexpr (2 * distance == HWY_LANES(float))
    return hwy::HWY_NAMESPACE::ConcatLowerUpper(d, v, v);
  else
    return hwy::HWY_NAMESPACE::SwapAdjacentBlocks(v);
}

/// A stage of the transform inside of vectors: sums in the lower lanes of pairs, differences in the upper
/// ones.
template <int distance, int count, class V>
HWY_INLINE void add_lanes(V (&v)[count]) {
  if constexpr (distance < HWY_LANES(float)) {
    const V signs = signs_of_pairs<distance>();
    for (V& part : v) part = hwy::HWY_NAMESPACE::MulAdd(part, signs, exchanged<distance>(part));
    add_lanes<2 * distance>(v);
  }
}

#else

template <int distance, int count, class V>
HWY_INLINE void add_lanes(V (&)[count]) {}

#endif

/// The stages between whole vectors.
template <int distance, int count, class V>
HWY_INLINE void add_vectors(V (&v)[count]) {
  if constexpr (distance < count) {
    for (int i = 0; i < count; ++i) {
      if ((i & distance) != 0) continue;
      const V a = v[i], b = v[i + distance];
      v[i] = hwy::HWY_NAMESPACE::Add(a, b);
      v[i + distance] = hwy::HWY_NAMESPACE::Sub(a, b);
    }
    add_vectors<2 * distance>(v);
  }
}

/// Rows that lie apart in memory.
template <class T>
struct RowsAt {
  T* data;
  std::int64_t stride;
  T* at(std::int64_t r) const { return data + r * stride; }
};

/// `rows` rows of to = D_3 H D_2 H D_1 H D_0 from in registers, a row in `count` vectors. Several rows take
/// turns where one alone waits for its sums. Stages come in the order of hadamard_transform, from near
/// numbers to far ones, so that every instruction set rounds the same sums.
template <int count, int rows>
HWY_INLINE void multiply_in_registers(const Diagonals& diagonals, RowsAt<float> to,
                                      RowsAt<const float> from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr int lanes = HWY_LANES(float);
  hn::Vec<decltype(d)> v[rows][count];
  const auto multiply = [&](const float* diagonal) HWY_ATTR {
    for (int i = 0; i < count; ++i) {
      const auto factor = hn::LoadU(d, diagonal + i * lanes);
      for (auto& row : v) row[i] = hn::Mul(row[i], factor);
    }
  };
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < count; ++i) v[r][i] = hn::LoadU(d, from.at(r) + i * lanes);
  multiply(diagonals[0]);
  for (std::size_t k = 1; k <= kDiagonals; ++k) {
    for (auto& row : v) add_lanes<1>(row);
    for (auto& row : v) add_vectors<1>(row);
    multiply(diagonals[k]);
  }
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < count; ++i) hn::StoreU(v[r][i], d, to.at(r) + i * lanes);
}

/// As many rows at a time as leave half of the registers free.
template <int count>
HWY_INLINE void multiply_rows_in_registers(const Diagonals& diagonals, RowsAt<float> to,
                                           RowsAt<const float> from, std::int64_t rows) {
  constexpr int together = std::clamp(static_cast<int>(HWY_LANES(float)) / count, 1, 4);
  std::int64_t r = 0;
  for (; r + together <= rows; r += together)
    multiply_in_registers<count, together>(diagonals, {to.at(r), to.stride}, {from.at(r), from.stride});
  for (; r < rows; ++r)
    multiply_in_registers<count, 1>(diagonals, {to.at(r), to.stride}, {from.at(r), from.stride});
}

/// to [rows, E] = D_3 H D_2 H D_1 H D_0 from [rows, E]: 3 E log2(E) additions a row. `to` may be `from`.
HWY_INLINE void multiply_by_block(const Diagonals& diagonals, RowsAt<float> to, RowsAt<const float> from,
                                  std::int64_t rows, std::int64_t width) {
  switch (width / HWY_LANES(float)) {
    case 1:
      return multiply_rows_in_registers<1>(diagonals, to, from, rows);
    case 2:
      return multiply_rows_in_registers<2>(diagonals, to, from, rows);
    case 4:
      return multiply_rows_in_registers<4>(diagonals, to, from, rows);
    case 8:
      return multiply_rows_in_registers<8>(diagonals, to, from, rows);
    case 16:
      return multiply_rows_in_registers<16>(diagonals, to, from, rows);
    default:
      for (std::int64_t r = 0; r < rows; ++r) {
        float* row = to.at(r);
        for (std::int64_t i = 0; i < width; ++i) row[i] = from.at(r)[i] * diagonals[0][i];
        for (std::size_t k = 1; k <= kDiagonals; ++k) {
          hadamard_transform(row, width);
          for (std::int64_t i = 0; i < width; ++i) row[i] *= diagonals[k][i];
        }
      }
  }
}

}  // namespace linnet::random_maps::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
