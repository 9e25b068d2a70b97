#include "kernels/pairs.h"

#include <algorithm>
#include <cassert>
#include <cstring>

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
constexpr std::int64_t block_pairs = 16;

/// pairs [count] = (even[j], odd[j]), rounded.
HWY_INLINE void zip_rows(std::uint32_t* pairs, const float* even, const float* odd, std::int64_t count) {
  const FloatTag d;
  const WordTag u32;
  const auto high = hn::Set(u32, 0xffff0000u);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    const auto low = hn::ShiftRight<16>(bf16_words(d, hn::LoadU(d, even + j)));
    hn::StoreU(hn::Or(low, hn::And(bf16_words(d, hn::LoadU(d, odd + j)), high)), u32, pairs + j);
  }
  const auto bits = [](float x) { return std::uint32_t{to_bf16(x).bits}; };
  for (; j < count; ++j) pairs[j] = bits(even[j]) | bits(odd[j]) << 16;
}

/// Rows that are asked for so far ahead: a row's 256 bytes are too few for the processor to do so.
constexpr std::int64_t rows_ahead = 16;

void pack(bf16* panel, View<const float> b, std::int64_t begin, std::int64_t padded) {
  static constexpr float zeros[columns] = {};
  const std::int64_t rows = b.extent(0), count = std::min(columns, b.extent(1) - begin);
  auto* pairs = reinterpret_cast<std::uint32_t*>(panel);
  for (std::int64_t k = 0; k < padded; k += 2, pairs += columns) {
    fetch(b, k + rows_ahead, k + rows_ahead + 2, begin, begin + count);
    if (k < rows) zip_rows(pairs, b.at(k, begin), k + 1 < rows ? b.at(k + 1, begin) : zeros, count);
    const std::int64_t written = k < rows ? count : 0;
    std::fill(pairs + written, pairs + columns, 0u);
  }
}

/// to[j · to_stride + i] = from[i · from_stride + j], i < rows and j < count. Rows of `from` begin at
/// multiples of 16 bytes.
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

/// sums [count] += both rows.
HWY_INLINE void add_pair(float* HWY_RESTRICT sums, const float* HWY_RESTRICT even,
                         const float* HWY_RESTRICT odd, std::int64_t count) {
  for_vectors(count, [&](auto lanes, std::int64_t j) HWY_ATTR {
    lanes.store(hn::Add(hn::Add(lanes.load(sums + j), lanes.load(even + j)), lanes.load(odd + j)), sums + j);
  });
}

void transpose(bf16* to, std::int64_t stride, View<const float> b, std::int64_t begin, std::int64_t count,
               bf16* memory, float* sums) {
  auto* block = reinterpret_cast<std::uint32_t*>(memory);
  auto* words = reinterpret_cast<std::uint32_t*>(to);
  const std::int64_t pairs = b.extent(0) / 2;
  for (std::int64_t first = 0; first < pairs; first += block_pairs) {
    const std::int64_t here = std::min(block_pairs, pairs - first);
    HWY_ALIGN float block_sums[columns] = {};
    for (std::int64_t k = 0; k < here; ++k) {
      const float *even = b.at(2 * (first + k), begin), *odd = b.at(2 * (first + k) + 1, begin);
      const std::int64_t ahead = 2 * (first + k) + rows_ahead;
      fetch(b, ahead, ahead + 2, begin, begin + count);
      zip_rows(block + k * columns, even, odd, count);
      if (sums != nullptr) add_pair(block_sums, even, odd, count);
    }
    for (std::int64_t j = 0; sums != nullptr && j < count; ++j) sums[j] += block_sums[j];
    transpose_words(words + first, stride / 2, block, columns, here, count);
  }
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(pack);
HWY_EXPORT(pack_transposed);
HWY_EXPORT(transpose);

}  // namespace

void pack_pairs(bf16* panel, View<const float> b, std::int64_t begin, std::int64_t padded) {
  HWY_DYNAMIC_DISPATCH(pack)(panel, b, begin, padded);
}

void pack_pairs_transposed(bf16* panel, View<const float> w, std::int64_t begin, std::int64_t padded,
                           bf16* memory) {
  assert(padded >= w.extent(1) && padded % 32 == 0);
  HWY_DYNAMIC_DISPATCH(pack_transposed)(panel, w, begin, padded, memory);
}

void transpose_rounded(bf16* to, std::int64_t stride, View<const float> b, std::int64_t begin,
                       std::int64_t count, bf16* memory, float* sums) {
  assert(b.extent(0) % 2 == 0 && stride % 2 == 0 && count <= 64);
  HWY_DYNAMIC_DISPATCH(transpose)(to, stride, b, begin, count, memory, sums);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
