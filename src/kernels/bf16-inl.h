// Vectors of bf16. Included like simd_math-inl.h.

#if defined(LINNET_KERNELS_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_BF16_INL_H_
#undef LINNET_KERNELS_BF16_INL_H_
#else
#define LINNET_KERNELS_BF16_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// The bits of the nearest bf16, ties to even; NaN stay NaN.
template <class D>
HWY_INLINE auto bf16_bits(D, hwy::HWY_NAMESPACE::Vec<D> value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> i32;
  const hn::RebindToUnsigned<D> u32;
  const hn::Rebind<std::uint16_t, D> u16;
  const auto word = hn::BitCast(u32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(u32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(word, hn::Set(u32, 0x7fff)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(word), hn::Set(u32, 0x40));
  const auto half = hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(value)), quiet, rounded);
  return hn::DemoteTo(u16, hn::BitCast(i32, half));
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
