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
#include "linnet/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

using FloatTag = hwy::HWY_NAMESPACE::ScalableTag<float>;
using FloatVector = hwy::HWY_NAMESPACE::Vec<FloatTag>;

/// Reads and writes a whole vector.
struct WholeVector {
  FloatVector load(const float* from, float = 0) const { return hwy::HWY_NAMESPACE::LoadU(FloatTag(), from); }
  void store(FloatVector v, float* to) const { hwy::HWY_NAMESPACE::StoreU(v, FloatTag(), to); }
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
  void store(FloatVector v, float* to) const {
    const FloatTag d;
    HWY_ALIGN float lanes[hwy::HWY_NAMESPACE::MaxLanes(d)];
    hwy::HWY_NAMESPACE::Store(v, d, lanes);
    std::memcpy(to, lanes, count * sizeof(float));
  }
  FloatVector keep(FloatVector v, float other) const {
    const FloatTag d;
    return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::FirstN(d, count), v,
                                          hwy::HWY_NAMESPACE::Set(d, other));
  }
};

/// Asks for columns [begin, end) of rows row … row_end − 1 of x, as far as there are such rows, ahead of
/// their use.
HWY_INLINE void fetch(View<const float> x, std::int64_t row, std::int64_t row_end, std::int64_t begin,
                      std::int64_t end) {
  for (; row < std::min(row_end, x.extent(0)); ++row)
    for (std::int64_t j = begin; j < end; j += 16) __builtin_prefetch(x.at(row, j), 0, 2);
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
