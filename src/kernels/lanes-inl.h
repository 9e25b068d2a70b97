// Loops over rows of any length: whole vectors, then one part of a vector. Included like simd_math-inl.h.

#if defined(LINNET_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_LANES_INL_H_
#undef LINNET_KERNELS_LANES_INL_H_
#else
#define LINNET_KERNELS_LANES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

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

/// Reads and writes the first `count` lanes, at most all but one; the others read as `other`.
struct PartOfVector {
  std::size_t count;

  FloatVector load(const float* from, float other = 0) const {
    const FloatTag d;
    HWY_ALIGN float lanes[hwy::HWY_NAMESPACE::MaxLanes(d)];
    for (float& lane : lanes) lane = other;
    std::memcpy(lanes, from, count * sizeof(float));
    return hwy::HWY_NAMESPACE::Load(d, lanes);
  }
  FloatVector load(const bf16* from) const {
    const HalfTag d;
    HWY_ALIGN std::uint16_t lanes[hwy::HWY_NAMESPACE::MaxLanes(d)] = {};
    std::memcpy(lanes, from, count * sizeof(bf16));
    return widen_bits(FloatTag(), hwy::HWY_NAMESPACE::Load(d, lanes));
  }
  template <bool = false>
  void store(FloatVector v, float* to) const {
    const FloatTag d;
    HWY_ALIGN float lanes[hwy::HWY_NAMESPACE::MaxLanes(d)];
    hwy::HWY_NAMESPACE::Store(v, d, lanes);
    std::memcpy(to, lanes, count * sizeof(float));
  }
  template <bool fast = false>
  void store(FloatVector v, bf16* to) const {
    const HalfTag d;
    HWY_ALIGN std::uint16_t lanes[hwy::HWY_NAMESPACE::MaxLanes(d)];
    hwy::HWY_NAMESPACE::Store(fast ? round_lanes(v) : bf16_bits(FloatTag(), v), d, lanes);
    std::memcpy(to, lanes, count * sizeof(bf16));
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
