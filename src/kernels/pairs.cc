#include "kernels/pairs.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/narrow.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pairs.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/bf16-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::RebindToUnsigned<FloatTag>;

constexpr std::int64_t columns = 64;

/// pairs [count] = (even[j], odd[j]), rounded; `fast` as for `round_pairs`.
template <bool fast>
HWY_INLINE void zip_rows(std::uint32_t* pairs, const float* even, const float* odd, std::int64_t count) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    const auto low = hn::LoadU(d, even + j), high = hn::LoadU(d, odd + j);
    hn::StoreU(fast ? round_pairs(low, high) : bf16_pairs(low, high), WordTag(), pairs + j);
  }
  const auto bits = [](float x) { return std::uint32_t{to_bf16(x).bits}; };
  for (; j < count; ++j) pairs[j] = bits(even[j]) | bits(odd[j]) << 16;
}

/// The same of rows that are bf16.
template <bool>
HWY_INLINE void zip_rows(std::uint32_t* pairs, const bf16* even, const bf16* odd, std::int64_t count) {
  const WordTag u32;
  const hn::Rebind<std::uint16_t, FloatTag> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(u32));
  const auto words = [&](const bf16* row) HWY_ATTR {
    return hn::PromoteTo(u32, hn::LoadU(u16, reinterpret_cast<const std::uint16_t*>(row)));
  };
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes)
    hn::StoreU(hn::Or(words(even + j), hn::ShiftLeft<16>(words(odd + j))), u32, pairs + j);
  for (; j < count; ++j) pairs[j] = std::uint32_t{even[j].bits} | std::uint32_t{odd[j].bits} << 16;
}

/// Rows that are read side by side, so that memory is read in order: of more of them the lines would fall
/// into the same few sets of the first cache.
constexpr std::int64_t rows_together = 8;

/// Rows that are asked for so far ahead.
constexpr std::int64_t rows_ahead = 16;

/// Calls body(k, j, count, even, odd) for every second row k of [begin, end) and the panel of b that begins
/// at column j; rows that are missing are zero.
template <class T, class Body>
HWY_INLINE void for_row_pairs(View<const T> b, std::int64_t begin, std::int64_t end, const Body& body) {
  static constexpr T zeros[columns] = {};
  const std::int64_t rows = b.extent(0);
  for (std::int64_t first = begin; first < end; first += rows_together) {
    const std::int64_t last = std::min(first + rows_together, end);
    for (std::int64_t j = 0; j < b.extent(1); j += columns) {
      const std::int64_t count = std::min(columns, b.extent(1) - j);
      for (std::int64_t k = first; k < last; k += 2) {
        fetch(b, k + rows_ahead, k + rows_ahead + 2, j, j + count);
        body(k, j, count, k < rows ? b.at(k, j) : zeros, k + 1 < rows ? b.at(k + 1, j) : zeros);
      }
    }
  }
}

/// sums [count] += both rows.
HWY_INLINE void add_pair(float* HWY_RESTRICT sums, const float* HWY_RESTRICT even,
                         const float* HWY_RESTRICT odd, std::int64_t count) {
  for_vectors(count, [&](auto lanes, std::int64_t j) HWY_ATTR {
    lanes.store(hn::Add(hn::Add(lanes.load(sums + j), lanes.load(even + j)), lanes.load(odd + j)), sums + j);
  });
}
HWY_INLINE void add_pair(float* HWY_RESTRICT sums, const bf16* HWY_RESTRICT even,
                         const bf16* HWY_RESTRICT odd, std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) sums[j] = sums[j] + to_float(even[j]) + to_float(odd[j]);
}

template <bool fast, class T>
void pack(bf16* panels, std::int64_t padded, View<const T> b, std::int64_t begin, float* sums) {
  auto* pairs = reinterpret_cast<std::uint32_t*>(panels);
  if (sums != nullptr) std::fill_n(sums, b.extent(1), 0.0f);
  for_row_pairs(b, begin, begin + pair_band,
                [&](std::int64_t k, std::int64_t j, std::int64_t count, const T* even, const T* odd)
                    HWY_ATTR {
                      std::uint32_t* to = pairs + (j * padded + k * columns) / 2;
                      zip_rows<fast>(to, even, odd, count);
                      std::fill(to + count, to + columns, 0u);
                      if (sums != nullptr) add_pair(sums + j, even, odd, count);
                    });
}

void pack_any(bf16* panels, std::int64_t padded, ConstFloatView b, std::int64_t begin, float* sums,
              bool fast) {
  if (b.dtype() == DType::bf16) return pack<false>(panels, padded, b.as<const bf16>(), begin, sums);
  if (fast) return pack<true>(panels, padded, b.as<const float>(), begin, sums);
  pack<false>(panels, padded, b.as<const float>(), begin, sums);
}

/// to[j · to_stride + i] = from[i · from_stride + j], i < rows and j < count.
HWY_INLINE void transpose_words(std::uint32_t* to, std::int64_t to_stride, const std::uint32_t* from,
                                std::int64_t from_stride, std::int64_t rows, std::int64_t count) {
  const std::int64_t columns = count / 4 * 4;
  std::int64_t done = 0;
  const auto tiles = [&](auto d) {
    const std::int64_t here =
        (rows - done) / static_cast<std::int64_t>(hn::Lanes(d)) * static_cast<std::int64_t>(hn::Lanes(d));
    transpose_tile(d, to + done, static_cast<std::size_t>(to_stride), from + done * from_stride,
                   static_cast<std::size_t>(from_stride), static_cast<std::size_t>(here),
                   static_cast<std::size_t>(columns));
    done += here;
  };
  tiles(WordTag());
#if HWY_TARGET != HWY_SCALAR
  tiles(hn::FixedTag<std::uint32_t, 4>());
#endif
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t i = j < columns ? done : 0; i < rows; ++i)
      to[j * to_stride + i] = from[i * from_stride + j];
}

void pack_transposed(bf16* panel, View<const float> w, std::int64_t begin, std::int64_t padded,
                     bf16* memory) {
  const FloatTag d;
  const hn::Rebind<std::uint16_t, FloatTag> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t inputs = w.extent(1), count = std::min(columns, w.extent(0) - begin);
  auto* rows = reinterpret_cast<std::uint16_t*>(memory);
  for (std::int64_t n = 0; n < count; ++n) {
    const float* from = w.at(begin + n);
    std::uint16_t* to = rows + n * padded;
    std::int64_t k = 0;
    for (; k + lanes <= inputs; k += lanes) hn::StoreU(bf16_bits(d, hn::LoadU(d, from + k)), u16, to + k);
    for (; k < inputs; ++k) to[k] = to_bf16(from[k]).bits;
    std::fill(to + inputs, to + padded, std::uint16_t{0});
  }
  std::memset(rows + count * padded, 0, static_cast<std::size_t>((columns - count) * padded) * sizeof(bf16));
  transpose_words(reinterpret_cast<std::uint32_t*>(panel), columns, reinterpret_cast<std::uint32_t*>(rows),
                  padded / 2, columns, padded / 2);
}

template <class T>
void transpose(bf16* to, std::int64_t stride, View<const T> b, std::int64_t begin, std::int64_t end,
               bf16* memory, float* sums) {
  auto* block = reinterpret_cast<std::uint32_t*>(memory);
  auto* words = reinterpret_cast<std::uint32_t*>(to) + begin / 2;
  const std::int64_t pairs = (end - begin) / 2;
  if (sums != nullptr) std::fill_n(sums, b.extent(1), 0.0f);
  for_row_pairs(b, begin, end,
                [&](std::int64_t k, std::int64_t j, std::int64_t count, const T* even, const T* odd)
                    HWY_ATTR {
                      zip_rows<true>(block + j * pairs + (k - begin) / 2 * columns, even, odd, count);
                      if (sums != nullptr) add_pair(sums + j, even, odd, count);
                    });
  for (std::int64_t j = 0; j < b.extent(1); j += columns)
    transpose_words(words + j * (stride / 2), stride / 2, block + j * pairs, columns, pairs,
                    std::min(columns, b.extent(1) - j));
}

void transpose_any(bf16* to, std::int64_t stride, ConstFloatView b, std::int64_t begin, std::int64_t end,
                   bf16* memory, float* sums) {
  if (b.dtype() == DType::bf16) return transpose(to, stride, b.as<const bf16>(), begin, end, memory, sums);
  transpose(to, stride, b.as<const float>(), begin, end, memory, sums);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(pack_any);
HWY_EXPORT(pack_transposed);
HWY_EXPORT(transpose_any);

}  // namespace

void pack_pairs(bf16* panels, std::int64_t padded, ConstFloatView b, std::int64_t begin, float* sums) {
  assert(begin % pair_band == 0 && padded % pair_band == 0);
  HWY_DYNAMIC_DISPATCH(pack_any)(panels, padded, b, begin, sums, multiplies_groups(WeightType::bf16));
}

void pack_pairs_transposed(bf16* panel, View<const float> w, std::int64_t begin, std::int64_t padded,
                           bf16* memory) {
  assert(padded >= w.extent(1) && padded % 32 == 0);
  HWY_DYNAMIC_DISPATCH(pack_transposed)(panel, w, begin, padded, memory);
}

void transpose_pairs(bf16* to, std::int64_t stride, ConstFloatView b, std::int64_t begin, std::int64_t end,
                     bf16* memory, float* sums) {
  assert(begin % 2 == 0 && end % 2 == 0 && stride % 2 == 0 && end - begin <= pair_band);
  HWY_DYNAMIC_DISPATCH(transpose_any)(to, stride, b, begin, end, memory, sums);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
