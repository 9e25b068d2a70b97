// Loops over rows of any length: whole vectors, then one part of a vector. Included like simd_math-inl.h.

#if defined(LINNET_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_LANES_INL_H_
#undef LINNET_KERNELS_LANES_INL_H_
#else
#define LINNET_KERNELS_LANES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/bf16-inl.h"
#include "linnet/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

using FloatTag = hwy::HWY_NAMESPACE::ScalableTag<float>;
using FloatVector = hwy::HWY_NAMESPACE::Vec<FloatTag>;

using HalfTag = hwy::HWY_NAMESPACE::Rebind<std::uint16_t, FloatTag>;

/// Reads and writes a whole vector, of bf16 widened and rounded; `fast` as for `round_lanes`.
struct WholeVector {
  FloatVector load(const float* from, float = 0) const { return hwy::HWY_NAMESPACE::LoadU(FloatTag(), from); }
  FloatVector load(const bf16* from) const {
    return widen_bits(FloatTag(), hwy::HWY_NAMESPACE::LoadU(HalfTag(), &from->bits));
  }
  template <bool = false>
  void store(FloatVector v, float* to) const {
    hwy::HWY_NAMESPACE::StoreU(v, FloatTag(), to);
  }
  template <bool fast = false>
  void store(FloatVector v, bf16* to) const {
    hwy::HWY_NAMESPACE::StoreU(fast ? round_lanes(v) : bf16_bits(FloatTag(), v), HalfTag(), &to->bits);
  }
  /// v where lanes count, `other` elsewhere.
  FloatVector keep(FloatVector v, float) const { return v; }
};

/// The first `count` lanes, at most all but one, and zeros. Halves of vectors, of their rest and so on: a
/// whole vector might reach into another line of the cache, which would be waited for, masked or not.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_first(D d, const hwy::HWY_NAMESPACE::TFromD<D>* from,
                                                 std::size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(d) > 1) {
    const hn::Half<D> half;
    const std::size_t lanes = hn::Lanes(half);
    if (count == lanes) return hn::ZeroExtendVector(d, hn::LoadU(half, from));
    if (count < lanes) return hn::ZeroExtendVector(d, load_first(half, from, count));
    return hn::Combine(d, load_first(half, from + lanes, count - lanes), hn::LoadU(half, from));
  }
#endif
  return count == 0 ? hn::Zero(d) : hn::LoadU(d, from);
}

/// The inverse.
template <class D>
HWY_INLINE void store_first(hwy::HWY_NAMESPACE::Vec<D> v, D d, hwy::HWY_NAMESPACE::TFromD<D>* to,
                            std::size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(d) > 1) {
    const hn::Half<D> half;
    const std::size_t lanes = hn::Lanes(half);
    if (count < lanes) return store_first(hn::LowerHalf(half, v), half, to, count);
    hn::StoreU(hn::LowerHalf(half, v), half, to);
    if (count > lanes) store_first(hn::UpperHalf(half, v), half, to + lanes, count - lanes);
    return;
  }
#endif
  if (count > 0) hn::StoreU(v, d, to);
}

/// Reads and writes the first `count` lanes, at most all but one; the others read as `other`.
struct PartOfVector {
  std::size_t count;

  FloatVector load(const float* from) const { return load_first(FloatTag(), from, count); }
  FloatVector load(const float* from, float other) const { return keep(load(from), other); }
  FloatVector load(const bf16* from) const {
    return widen_bits(FloatTag(), load_first(HalfTag(), &from->bits, count));
  }
  template <bool = false>
  void store(FloatVector v, float* to) const {
    store_first(v, FloatTag(), to, count);
  }
  template <bool fast = false>
  void store(FloatVector v, bf16* to) const {
    store_first(fast ? round_lanes(v) : bf16_bits(FloatTag(), v), HalfTag(), &to->bits, count);
  }
  FloatVector keep(FloatVector v, float other) const {
    const FloatTag d;
    return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::FirstN(d, count), v,
                                          hwy::HWY_NAMESPACE::Set(d, other));
  }
};

/// Asks for columns [begin, end) of rows row … row_end − 1 of x, as far as there are such rows, ahead of
/// their use.
template <class T>
HWY_INLINE void fetch(View<const T> x, std::int64_t row, std::int64_t row_end, std::int64_t begin,
                      std::int64_t end) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (; row < std::min(row_end, x.extent(0)); ++row)
    for (std::int64_t j = begin; j < end; j += line) __builtin_prefetch(x.at(row, j), 0, 2);
}

/// Calls body(lanes, i) for i = 0, L, 2L … below n, L lanes a vector; `lanes` is one of the two above.
template <class Body>
HWY_INLINE void for_vectors(std::int64_t n, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) body(WholeVector(), i);
  if (i < n) body(PartOfVector{static_cast<std::size_t>(n - i)}, i);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
