// Transposes tiles of 32-bit words. Included like simd_math-inl.h.
#if defined(LINNET_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_TRANSPOSE_INL_H_
#undef LINNET_KERNELS_TRANSPOSE_INL_H_
#else
#define LINNET_KERNELS_TRANSPOSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// to [columns, ldt] from [rows, ldf] transposed: `rows` is rounded up to vectors of d, `columns` to 4.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void transpose_tile(D d, T* HWY_RESTRICT to, std::size_t ldt, const T* HWY_RESTRICT from,
                               std::size_t ldf, std::size_t rows, std::size_t columns) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) to[c * ldt + r] = from[r * ldf + c];
#else
  // A vector takes four neighbours of each of the rows r, r + 4, r + 8 …, one row a 128-bit block; four such
  // vectors are transposed within their blocks.
  const hn::Repartition<std::uint64_t, D> d64;
  const std::size_t lanes = hn::Lanes(d);
  const auto iota = hn::Iota(d, 0);
  for (std::size_t r = 0; r < rows; r += lanes) {
    for (std::size_t c = 0; c < columns; c += 4) {
      hn::Vec<D> part[4];
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i) {
        const T* at = from + (r + i) * ldf + c;
        part[i] = hn::LoadDup128(d, at);
        if constexpr (hn::MaxLanes(D()) > 4) {
#pragma GCC unroll 4
          for (std::size_t block = 1; block < hn::MaxLanes(d) / 4; ++block)
            part[i] = hn::IfThenElse(hn::Lt(iota, hn::Set(d, static_cast<T>(4 * block))), part[i],
                                     hn::LoadDup128(d, at + 4 * block * ldf));
        }
      }
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, part[0], part[1]));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, part[2], part[3]));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, part[0], part[1]));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, part[2], part[3]));
      T* out = to + c * ldt + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + ldt);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * ldt);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * ldt);
    }
  }
#endif
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
