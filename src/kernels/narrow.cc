#include "kernels/narrow.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/fail.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/narrow.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/activation-inl.h"
#include "kernels/bf16-inl.h"
#include "kernels/lanes-inl.h"

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
  for (; i + lanes <= count; i += lanes) hn::StoreU(bf16_bits(d, hn::LoadU(d, from + i)), u16, bits + i);
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

/// Codes 128 + round(127 x / largest); returns their scale, NaN where a number is not finite.
float quantise_row(std::uint8_t* to, const float* from, std::int64_t count) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> u32;
  const hn::Rebind<std::uint8_t, FloatTag> u8;
  const float largest = largest_size(from, count);
  const float steps = largest > 0 ? 127.0f / largest : 0.0f;
  // Among floats from 2^23 on, neighbours differ by 1: adding one rounds, and leaves the code in the lowest
  // byte.
  const float shift = 12582912.0f + 128.0f;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto code = hn::MulAdd(hn::LoadU(d, from + i), hn::Set(d, steps), hn::Set(d, shift));
    hn::StoreU(hn::U8FromU32(hn::And(hn::BitCast(u32, code), hn::Set(u32, 255))), u8, to + i);
  }
  for (; i < count; ++i) to[i] = static_cast<std::uint8_t>(128 + std::lrint(from[i] * steps));
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

#if HWY_ARCH_X86 && HWY_MAX_BYTES == 64

/// One panel of bf16 pairs: the even inputs are the low halves of its words, the odd ones the high halves.
void multiply_panel(float* sums, const bf16* row, std::int64_t inputs, const std::byte* panel) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> u32;
  constexpr int lanes = 16, vectors = 4;
  const auto high = hn::Set(u32, 0xffff0000u);
  FloatVector sum[vectors];
#pragma GCC unroll 4
  for (auto& part : sum) part = hn::Zero(d);
  for (std::int64_t k = 0; k < inputs; k += 2) {
    const auto even = hn::Set(d, to_float(row[k]));
    const auto odd = hn::Set(d, k + 1 < inputs ? to_float(row[k + 1]) : 0.0f);
    const auto* pairs = reinterpret_cast<const std::uint32_t*>(panel) + k / 2 * NarrowLayout::columns;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const auto pair = hn::LoadU(u32, pairs + v * lanes);
      sum[v] = hn::MulAdd(even, hn::BitCast(d, hn::ShiftLeft<16>(pair)), sum[v]);
      sum[v] = hn::MulAdd(odd, hn::BitCast(d, hn::And(pair, high)), sum[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) hn::StoreU(sum[v], d, sums + v * lanes);
}

#else  // oneDNN has products of bf16 with AVX-512 alone, so nobody waits for these.

void multiply_panel(float* sums, const bf16* row, std::int64_t inputs, const std::byte* panel) {
  const NarrowLayout layout{WeightType::bf16, inputs, NarrowLayout::columns};
  for (std::int64_t n = 0; n < NarrowLayout::columns; ++n) {
    sums[n] = 0;
    for (std::int64_t k = 0; k < inputs; ++k)
      sums[n] += to_float(row[k]) * to_float(reinterpret_cast<const bf16*>(panel)[layout.offset(k, n)]);
  }
}

#endif

void multiply_row(float* sums, const NarrowLayout& layout, const bf16* row, const std::byte* panels,
                  std::int64_t outputs) {
  constexpr std::int64_t columns = NarrowLayout::columns;
  for (std::int64_t n = 0; n < outputs; n += columns, panels += layout.panel_bytes()) {
    if (n + columns <= outputs) {
      multiply_panel(sums + n, row, layout.inputs, panels);
      continue;
    }
    float whole[columns];
    multiply_panel(whole, row, layout.inputs, panels);
    std::copy_n(whole, outputs - n, sums + n);
  }
}

template <Activation activation>
HWY_INLINE FloatVector activate_narrow(FloatVector x) {
  if constexpr (activation == Activation::gelu) return near_gelu(FloatTag(), x);
  return activate<activation>(FloatTag(), x);
}

/// to [count] = bias, activation and residual after row i of the sums.
template <WeightType type, Activation activation>
void finish_row(float* to, const NarrowSums& sums, std::int64_t i, std::int64_t count, const float* bias,
                const float* residual) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> i32;
  // Both kinds of sums are 32 bits wide; whole numbers pass through the loads of floats unchanged.
  const float* row = static_cast<const float*>(sums.sums) + i * count;
  const float *scale = nullptr, *excess = nullptr;
  FloatVector row_scale = hn::Zero(d);
  if constexpr (type == WeightType::int8) {
    scale = sums.weights->scale.data() + sums.first;
    excess = reinterpret_cast<const float*>(sums.weights->excess.data() + sums.first);
    row_scale = hn::Set(d, sums.row_scales[i]);
  }
  for_vectors(count, [&](auto lanes, std::int64_t j) {
    FloatVector x = lanes.load(row + j);
    if constexpr (type == WeightType::int8) {
      const auto exact = hn::Sub(hn::BitCast(i32, x), hn::BitCast(i32, lanes.load(excess + j)));
      x = hn::Mul(hn::ConvertTo(d, exact), hn::Mul(row_scale, lanes.load(scale + j)));
    }
    if (bias != nullptr) x = hn::Add(x, lanes.load(bias + j));
    x = activate_narrow<activation>(x);
    if (residual != nullptr) x = hn::Add(x, lanes.load(residual + j));
    lanes.store(x, to + j);
  });
}

using FinishRow = void (*)(float*, const NarrowSums&, std::int64_t, std::int64_t, const float*, const float*);

template <WeightType type>
FinishRow finisher(Activation activation) {
  switch (activation) {
    case Activation::none:
      return finish_row<type, Activation::none>;
    case Activation::relu:
      return finish_row<type, Activation::relu>;
    case Activation::gelu:
      return finish_row<type, Activation::gelu>;
    case Activation::gelu_tanh:
      return finish_row<type, Activation::gelu_tanh>;
    case Activation::swiglu:
      return finish_row<type, Activation::swiglu>;
  }
  return nullptr;
}

FinishRow finisher(const NarrowSums& sums, Activation activation) {
  return sums.type == WeightType::bf16 ? finisher<WeightType::bf16>(activation)
                                       : finisher<WeightType::int8>(activation);
}

void finish(View<float> to, const NarrowSums& sums, const Epilogue& epilogue) {
  const FinishRow run = finisher(sums, epilogue.activation);
  const bool residual = epilogue.residual.data() != nullptr;
  for (std::int64_t i = 0; i < to.extent(0); ++i)
    run(to.at(i), sums, i, to.extent(1), epilogue.bias.data(), residual ? epilogue.residual.at(i) : nullptr);
}

void finish_and_narrow(const NarrowRows& to, std::int64_t rows, std::span<float> row, const NarrowSums& sums,
                       const Epilogue& epilogue) {
  const FinishRow run = finisher(sums, epilogue.activation);
  const auto count = static_cast<std::int64_t>(row.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    run(row.data(), sums, i, count, epilogue.bias.data(), nullptr);
    narrow_row(to, i, row.data(), count);
  }
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(narrow_all);
HWY_EXPORT(multiply_row);
HWY_EXPORT(finish);
HWY_EXPORT(finish_and_narrow);

}  // namespace

void narrow_rows(const NarrowRows& to, View<const float> rows) { HWY_DYNAMIC_DISPATCH(narrow_all)(to, rows); }

void multiply_narrow_row(float* sums, const NarrowLayout& layout, const bf16* row, const std::byte* panels,
                         std::int64_t outputs) {
  HWY_DYNAMIC_DISPATCH(multiply_row)(sums, layout, row, panels, outputs);
}

void finish_narrow(View<float> to, const NarrowSums& sums, const Epilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(finish)(to, sums, epilogue);
}

void finish_narrow(const NarrowRows& to, std::int64_t rows, std::span<float> row, const NarrowSums& sums,
                   const Epilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(finish_and_narrow)(to, rows, row, sums, epilogue);
}

WeightType find_weight_type(const std::string& name) {
  if (name == "f32") return WeightType::f32;
  if (name == "bf16") return WeightType::bf16;
  if (name == "int8") return WeightType::int8;
  fail<UsageError>("weights", "expected f32, bf16 or int8, got '{}'", name);
}

float quantise_weights(std::span<std::int8_t> codes, std::span<const float> row) {
  float largest = 0;
  for (const float w : row) largest = std::max(largest, std::abs(w));
  const float scale = largest / 127.0f;
  for (std::size_t k = 0; k < row.size(); ++k)
    codes[k] = scale > 0 ? static_cast<std::int8_t>(std::lrint(row[k] / scale)) : std::int8_t{0};
  return scale;
}

void round_weights(View<float> w, WeightType type) {
  if (type == WeightType::f32) return;
  const auto inputs = static_cast<std::size_t>(w.extent(1));
  std::vector<std::int8_t> codes(inputs);
  for (std::int64_t n = 0; n < w.extent(0); ++n) {
    const std::span<float> row(w.at(n), inputs);
    if (type == WeightType::bf16) {
      for (float& x : row) x = to_float(to_bf16(x));
      continue;
    }
    const float scale = quantise_weights(codes, row);
    for (std::size_t k = 0; k < inputs; ++k) row[k] = scale * static_cast<float>(codes[k]);
  }
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
