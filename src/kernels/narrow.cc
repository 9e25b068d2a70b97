#include "kernels/narrow.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "kernels/processor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/narrow.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/bf16-inl.h"
#include "kernels/epilogue-inl.h"
#include "kernels/groups-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The nearest bf16 of each.
void round_row(bf16* to, const float* from, std::int64_t count) {
  const FloatTag d;
  const hn::Rebind<std::uint16_t, FloatTag> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto* bits = reinterpret_cast<std::uint16_t*>(to);
  std::int64_t i = 0;
  constexpr std::int64_t ahead = 512;
  for (; i + lanes <= count; i += lanes) {
    __builtin_prefetch(from + i + ahead);
    hn::StoreU(round_lanes(hn::LoadU(d, from + i)), u16, bits + i);
  }
  for (; i < count; ++i) to[i] = to_bf16(from[i]);
}

/// The largest |x|; NaN or infinite where a number is.
float largest_size(const float* from, std::int64_t count) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> u32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Floats without their sign are ordered as integers are, NaN above all.
  const auto size = hn::Set(u32, 0x7fffffffu);
  hn::Vec<decltype(u32)> most[4];
#pragma GCC unroll 4
  for (auto& part : most) part = hn::Zero(u32);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      most[j] = hn::Max(most[j], hn::And(hn::BitCast(u32, hn::LoadU(d, from + i + j * lanes)), size));
  }
  for_vectors(count - i, [&](auto part, std::int64_t j) {
    most[0] = hn::Max(most[0], hn::And(hn::BitCast(u32, part.load(from + i + j)), size));
  });
  const auto all = hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
  return hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(u32, all)));
}

/// to[i] = codes(from[i]), a byte for each number.
template <class Byte, class Codes>
void store_codes(Byte* to, const float* from, std::int64_t count, const Codes& codes) {
  const FloatTag d;
  const hn::Rebind<Byte, FloatTag> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(codes(hn::LoadU(d, from + i)), bytes, to + i);
  if (i < count) {
    const PartOfVector part{static_cast<std::size_t>(count - i)};
    Byte rest[hn::MaxLanes(d)];
    hn::StoreU(codes(part.load(from + i)), bytes, rest);
    std::memcpy(to + i, rest, part.count);
  }
}

/// round(x / scale), to the nearest even number between two. A subnormal scale may be too small for 127 of it
/// to reach the largest number.
hn::Vec<hn::RebindToSigned<FloatTag>> whole_multiples(FloatVector x, float scale) {
  const hn::RebindToSigned<FloatTag> i32;
  const auto multiples = hn::NearestInt(hn::Div(x, hn::Set(FloatTag(), scale)));
  return hn::Min(hn::Max(multiples, hn::Set(i32, -127)), hn::Set(i32, 127));
}

float scale_of_weights(const float* row, std::int64_t count) { return largest_size(row, count) / 127.0f; }

float quantise_row_of_weights(std::int8_t* codes, const float* row, std::int64_t count) {
  const hn::Rebind<std::int8_t, FloatTag> i8;
  const float scale = scale_of_weights(row, count);
  if (!(scale > 0)) {
    std::memset(codes, 0, static_cast<std::size_t>(count));
    return scale;
  }
  store_codes(codes, row, count,
              [&](FloatVector x) HWY_ATTR { return hn::DemoteTo(i8, whole_multiples(x, scale)); });
  return scale;
}

/// The multiples of its scale that a row's codes stand for.
void round_row_of_weights(float* row, std::int64_t count) {
  const FloatTag d;
  const float scale = scale_of_weights(row, count);
  if (!(scale > 0)) {
    std::fill_n(row, count, 0.0f);
    return;
  }
  for_vectors(count, [&](auto part, std::int64_t i) HWY_ATTR {
    const auto code = hn::ConvertTo(d, whole_multiples(part.load(row + i), scale));
    part.store(hn::Mul(hn::Set(d, scale), code), row + i);
  });
}

/// Codes 128 + round(127 x / largest); returns their scale, NaN where a number is not finite. Rows without a
/// number of 4e-37, whose inverse floats do not hold, count as zeros.
float quantise_row(std::uint8_t* to, const float* from, std::int64_t count) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> u32;
  const float largest = largest_size(from, count);
  const float inverse = 127.0f / largest;
  const float steps = inverse <= std::numeric_limits<float>::max() ? inverse : 0.0f;
  // Among floats from 2^23 on, neighbours differ by 1: adding one rounds, and leaves the code in the lowest
  // byte.
  const float shift = 12582912.0f + 128.0f;
  store_codes(to, from, count, [&](FloatVector x) HWY_ATTR {
    const auto code = hn::MulAdd(x, hn::Set(d, steps), hn::Set(d, shift));
    return hn::U8FromU32(hn::And(hn::BitCast(u32, code), hn::Set(u32, 255)));
  });
  return largest / 127.0f + 0.0f * largest;
}

void narrow_row(const NarrowRows& to, std::int64_t i, const float* from, std::int64_t count) {
  if (to.type == WeightType::bf16)
    round_row(static_cast<bf16*>(to.rows) + i * count, from, count);
  else
    to.scales[i] = quantise_row(static_cast<std::uint8_t*>(to.rows) + i * count, from, count);
}

void narrow_all(const NarrowRows& to, View<const float> rows) {
  for (std::int64_t i = 0; i < rows.extent(0); ++i) narrow_row(to, i, rows.at(i), rows.extent(1));
}

/// `rows` rows of n numbers, `stride` apart, f32 or rounded, = what `end` and the rows below it say after the
/// sums from row `first` on.
template <WeightType type, Activation activation, class T>
void finish_sums(T* to, std::int64_t stride, std::int64_t rows, std::int64_t n, const NarrowSums& sums,
                 std::int64_t first, const Epilogue::Row& end, const Epilogue::Steps& steps) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> i32;
  // Both kinds of sums are 32 bits wide; whole numbers pass through the loads of floats unchanged.
  const float* from = static_cast<const float*>(sums.sums) + first * sums.stride;
  const float *row_scales = nullptr, *scale = nullptr, *excess = nullptr;
  if constexpr (type == WeightType::int8) {
    row_scales = sums.row_scales + first;
    scale = sums.weights->scale.data() + sums.first;
    excess = reinterpret_cast<const float*>(sums.weights->excess.data() + sums.first);
  }
  finish_rows<activation, true>(
      to, stride, rows, n, end, steps, [&](auto lanes, std::int64_t i, std::int64_t j) HWY_ATTR {
        FloatVector x = lanes.load(from + i * sums.stride + j);
        if constexpr (type == WeightType::int8) {
          const auto exact = hn::Sub(hn::BitCast(i32, x), hn::BitCast(i32, lanes.load(excess + j)));
          x = hn::Mul(hn::ConvertTo(d, exact), hn::Mul(hn::Set(d, row_scales[i]), lanes.load(scale + j)));
        }
        return x;
      });
}

template <class T>
using FinishSums = void (*)(T*, std::int64_t, std::int64_t, std::int64_t, const NarrowSums&, std::int64_t,
                            const Epilogue::Row&, const Epilogue::Steps&);

template <WeightType type, class T>
FinishSums<T> finisher(Activation activation) {
  return with_activation(
      activation, [](auto known) -> FinishSums<T> { return finish_sums<type, decltype(known)::value, T>; });
}

FinishSums<float> finisher(const NarrowSums& sums, Activation activation) {
  return sums.type == WeightType::bf16 ? finisher<WeightType::bf16, float>(activation)
                                       : finisher<WeightType::int8, float>(activation);
}

void finish(FloatView to, const NarrowSums& sums, const Epilogue& epilogue) {
  if (to.extent(0) == 0) return;
  const auto finish_all = [&](auto rows, auto run) {
    run(rows.data(), rows.stride(0), rows.extent(0), rows.extent(1), sums, 0, epilogue.row(0, 0),
        epilogue.steps());
  };
  if (to.dtype() == DType::bf16)
    finish_all(to.as<bf16>(), finisher<WeightType::bf16, bf16>(epilogue.activation));
  else
    finish_all(to.as<float>(), finisher(sums, epilogue.activation));
}

void finish_and_narrow(const NarrowRows& to, std::int64_t rows, std::span<float> row, const NarrowSums& sums,
                       const Epilogue& epilogue) {
  const FinishSums<float> run = finisher(sums, epilogue.activation);
  const auto count = static_cast<std::int64_t>(row.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    run(row.data(), count, 1, count, sums, i, epilogue.row(i, 0), {});
    narrow_row(to, i, row.data(), count);
  }
}

bool has_group_tiles() { return group_tiles; }

/// What a product writes and its epilogue reads and writes: tiles ask for their part of it, whose rows lie
/// apart, before they need it.
class Destination {
 public:
  template <class T>
  explicit Destination(View<T> to) {
    add(to.data(), to.stride(0));
  }
  template <class T>
  Destination(View<T> to, const Epilogue& epilogue) : Destination(to) {
    const Epilogue::Row row = epilogue.row(0, 0);
    const Epilogue::Steps steps = epilogue.steps();
    add(row.residual, steps.residual);
    add(row.slope, steps.slope);
    add(row.rounded_slope, steps.rounded_slope);
    add(row.factor, steps.factor);
    add(row.rounded_factor, steps.rounded_factor);
  }

  HWY_INLINE void fetch(std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t n) const {
    constexpr std::int64_t line = 64;
    for (const Area* area = areas_; area != last_; ++area) {
      const std::byte* row = area->at + begin * area->stride + j * area->element;
      for (std::int64_t i = begin; i < end; ++i, row += area->stride)
        for (std::int64_t byte = 0; byte < n * area->element; byte += line) __builtin_prefetch(row + byte);
    }
  }

 private:
  template <class T>
  void add(const T* at, std::int64_t stride) {
    constexpr auto element = static_cast<std::int64_t>(sizeof(T));
    if (at != nullptr) *last_++ = {reinterpret_cast<const std::byte*>(at), stride * element, element};
  }

  struct Area {
    const std::byte* at;
    std::int64_t stride, element;  ///< in bytes
  };
  Area areas_[4];  // an epilogue has at most one slope and one factor
  Area* last_ = areas_;
};

GroupRows rows_of(const NarrowProduct& product) {
  assert(!product.columns);
  return {product.first_row(), product.row_bytes()};
}

/// By matrix units, or by `multiply_group_tiles`.
template <WeightType type, class Rows, class Then>
HWY_INLINE void multiply_tiles(const NarrowProduct& product, const Rows& rows, const Destination& destination,
                               const Then& then) {
  if (product.units)
    multiply_unit_tiles<type>(product, destination, then);
  else
    multiply_group_tiles<type>(product, rows, destination, then);
}

template <WeightType type, class Rows>
void take_sums(View<GroupSum<type>> to, bool add, const NarrowProduct& product, const Rows& rows) {
  const Destination destination(to);
  multiply_tiles<type>(
      product, rows, destination,
      [&](const auto* sums, std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t n) HWY_ATTR {
        for (std::int64_t i = begin; i < end; ++i, sums += NarrowLayout::columns) {
          GroupSum<type>* HWY_RESTRICT row = to.at(i, j);
          for (std::int64_t k = 0; k < n; ++k) row[k] = add ? wrapping_sum(row[k], sums[k]) : sums[k];
        }
      });
}

void take_sums_of_pairs(View<float> to, bool add, const NarrowProduct& product) {
  if (product.columns)
    return take_sums<WeightType::bf16>(to, add, product, GroupColumns{product.first_row()});
  take_sums<WeightType::bf16>(to, add, product, rows_of(product));
}
void take_sums_of_codes(View<std::int32_t> to, bool add, const NarrowProduct& product) {
  take_sums<WeightType::int8>(to, add, product, rows_of(product));
}

template <WeightType type, class T>
void finish_tiles(View<T> to, const NarrowProduct& product, const CodeScales* weights, std::int64_t first,
                  const Epilogue& epilogue) {
  const FinishSums<T> run = finisher<type, T>(epilogue.activation);
  const Epilogue::Steps steps = epilogue.steps();
  const Destination destination(to, epilogue);
  multiply_tiles<type>(
      product, rows_of(product), destination,
      [&](const auto* sums, std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t n) HWY_ATTR {
        const float* scales = type == WeightType::int8 ? product.rows.scales + begin : nullptr;
        const NarrowSums tile{type, sums, NarrowLayout::columns, scales, weights, first + j};
        run(to.at(begin, j), to.stride(0), end - begin, n, tile, 0, epilogue.row(begin, j), steps);
      });
}

void multiply_and_finish(FloatView to, const NarrowProduct& product, const CodeScales* weights,
                         std::int64_t first, const Epilogue& epilogue) {
  if (to.dtype() == DType::bf16)
    return finish_tiles<WeightType::bf16>(to.as<bf16>(), product, weights, first, epilogue);
  if (product.layout.type == WeightType::bf16)
    return finish_tiles<WeightType::bf16>(to.as<float>(), product, weights, first, epilogue);
  finish_tiles<WeightType::int8>(to.as<float>(), product, weights, first, epilogue);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(narrow_all);
HWY_EXPORT(quantise_row_of_weights);
HWY_EXPORT(round_row_of_weights);
HWY_EXPORT(finish);
HWY_EXPORT(finish_and_narrow);
HWY_EXPORT(has_group_tiles);
HWY_EXPORT(take_sums_of_pairs);
HWY_EXPORT(take_sums_of_codes);
HWY_EXPORT(multiply_and_finish);

}  // namespace

void narrow_rows(const NarrowRows& to, View<const float> rows) { HWY_DYNAMIC_DISPATCH(narrow_all)(to, rows); }

void finish_narrow(FloatView to, const NarrowSums& sums, const Epilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(finish)(to, sums, epilogue);
}

void finish_narrow(const NarrowRows& to, std::int64_t rows, std::span<float> row, const NarrowSums& sums,
                   const Epilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(finish_and_narrow)(to, rows, row, sums, epilogue);
}

bool multiplies_groups(WeightType type) {
  return HWY_DYNAMIC_DISPATCH(has_group_tiles)() && has_fast_instructions_for(type);
}

void multiply_groups(View<float> sums, bool add, const NarrowProduct& product) {
  HWY_DYNAMIC_DISPATCH(take_sums_of_pairs)(sums, add, product);
}

void multiply_groups(View<std::int32_t> sums, bool add, const NarrowProduct& product) {
  HWY_DYNAMIC_DISPATCH(take_sums_of_codes)(sums, add, product);
}

void multiply_groups(FloatView to, const NarrowProduct& product, const CodeScales* weights,
                     std::int64_t first, const Epilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(multiply_and_finish)(to, product, weights, first, epilogue);
}

WeightType find_weight_type(const std::string& name) {
  if (name == "f32") return WeightType::f32;
  if (name == "bf16") return WeightType::bf16;
  if (name == "int8") return WeightType::int8;
  fail<UsageError>("weights", "expected f32, bf16 or int8, got '{}'", name);
}

float quantise_weights(std::span<std::int8_t> codes, std::span<const float> row) {
  assert(codes.size() == row.size());
  return HWY_DYNAMIC_DISPATCH(quantise_row_of_weights)(codes.data(), row.data(), std::ssize(row));
}

void round_weights(View<float> w, WeightType type) {
  if (type == WeightType::f32) return;
  const std::int64_t inputs = w.extent(1);
  for (std::int64_t n = 0; n < w.extent(0); ++n) {
    if (type == WeightType::int8) {
      HWY_DYNAMIC_DISPATCH(round_row_of_weights)(w.at(n), inputs);
      continue;
    }
    for (float& x : std::span(w.at(n), static_cast<std::size_t>(inputs))) x = to_float(to_bf16(x));
  }
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
