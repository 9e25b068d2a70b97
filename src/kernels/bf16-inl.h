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

/// Words whose high halves are the nearest bf16, ties to even; NaN stay NaN.
template <class D>
HWY_INLINE auto bf16_words(D, hwy::HWY_NAMESPACE::Vec<D> value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> u32;
  const auto word = hn::BitCast(u32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(u32, 1));
  const auto rounded = hn::Add(hn::Add(word, hn::Set(u32, 0x7fff)), odd);
  const auto quiet = hn::Or(word, hn::Set(u32, 0x400000));
  return hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(value)), quiet, rounded);
}

/// The bits of the nearest bf16.
template <class D>
HWY_INLINE auto bf16_bits(D d, hwy::HWY_NAMESPACE::Vec<D> value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> i32;
  const hn::Rebind<std::uint16_t, D> u16;
  return hn::DemoteTo(u16, hn::BitCast(i32, hn::ShiftRight<16>(bf16_words(d, value))));
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
