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

/// Words of the nearest bf16 of `even` in the low halves, of `odd` in the high ones.
HWY_INLINE auto bf16_pairs(hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> even,
                           hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> odd) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto high = hn::Set(hn::ScalableTag<std::uint32_t>(), 0xffff0000u);
  return hn::Or(hn::ShiftRight<16>(bf16_words(d, even)), hn::And(bf16_words(d, odd), high));
}

/// The numbers whose bf16 have these bits.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> widen_bits(
    D d, hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::Rebind<std::uint16_t, D>> bits) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> u32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(u32, bits)));
}

// Rounding by the instructions of AVX-512 BF16, for what runs only where
// `multiplies_groups(WeightType::bf16)`. Numbers below 2^-126 become 0, as they are in products.

#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64

/// The bits of the rounded numbers.
HWY_INLINE auto round_lanes(hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> value) {
  hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::CappedTag<std::uint16_t, 16>> bits;
  asm("vcvtneps2bf16 %1, %0" : "=v"(bits.raw) : "v"(value.raw));
  return bits;
}

/// Words of the rounded numbers of `even` in the low halves, of `odd` in the high ones.
HWY_INLINE auto round_pairs(hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> even,
                            hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> odd) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint32_t> u32;
  // Word i takes the halves i and 16 + i of what the conversion leaves.
  const auto order = hn::Add(hn::Iota(u32, 0x100000), hn::ShiftLeft<16>(hn::Iota(u32, 0)));
  auto words = hn::Zero(u32);
  asm("vcvtne2ps2bf16 %1, %2, %0\n\tvpermw %0, %3, %0"
      : "=&v"(words.raw)
      : "v"(even.raw), "v"(odd.raw), "v"(order.raw));
  return words;
}

#else

HWY_INLINE auto round_lanes(hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> value) {
  return bf16_bits(hwy::HWY_NAMESPACE::ScalableTag<float>(), value);
}

HWY_INLINE auto round_pairs(hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> even,
                            hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>> odd) {
  return bf16_pairs(even, odd);
}

#endif

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
