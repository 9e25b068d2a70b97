#include "kernels/narrow.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/narrow.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/bf16-inl.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The nearest bf16 of each.
void narrow(bf16* to, const float* from, std::int64_t count) {
  const FloatTag d;
  const hn::Rebind<std::uint16_t, FloatTag> u16;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto* bits = reinterpret_cast<std::uint16_t*>(to);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Bf16Bits(d, hn::LoadU(d, from + i)), u16, bits + i);
  for (; i < count; ++i) to[i] = to_bf16(from[i]);
}

/// Codes 128 + round(127 x / largest); returns their scale, NaN where a number is not finite.
float quantise(std::uint8_t* to, const float* from, std::int64_t count) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> i32;
  const hn::Rebind<std::uint8_t, FloatTag> u8;
  auto most = hn::Zero(d), not_finite = hn::Zero(d);
  for_vectors(count, [&](auto lanes, std::int64_t i) {
    const auto x = lanes.load(from + i);
    most = hn::Max(most, hn::Abs(x));
    not_finite = hn::MulAdd(x, hn::Zero(d), not_finite);
  });
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  const float steps = largest > 0 ? 127.0f / largest : 0.0f;
  const auto factor = hn::Set(d, steps);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto code = hn::Add(hn::NearestInt(hn::Mul(hn::LoadU(d, from + i), factor)), hn::Set(i32, 128));
    hn::StoreU(hn::DemoteTo(u8, code), u8, to + i);
  }
  for (; i < count; ++i) to[i] = static_cast<std::uint8_t>(128 + std::lrint(from[i] * steps));
  return largest / 127.0f + hn::GetLane(hn::SumOfLanes(d, not_finite));
}

void scale_row(float* to, const std::int32_t* sums, float row_scale, const float* scale,
               const std::int32_t* sum, std::int64_t count) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> i32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, row_scale);
  std::int64_t n = 0;
  for (; n + lanes <= count; n += lanes) {
    const auto exact = hn::Sub(hn::LoadU(i32, sums + n), hn::ShiftLeft<7>(hn::LoadU(i32, sum + n)));
    const auto value = hn::Mul(hn::ConvertTo(d, exact), hn::Mul(factor, hn::LoadU(d, scale + n)));
    hn::StoreU(value, d, to + n);
  }
  for (; n < count; ++n) to[n] = static_cast<float>(sums[n] - 128 * sum[n]) * (row_scale * scale[n]);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(narrow);
HWY_EXPORT(quantise);
HWY_EXPORT(scale_row);

}  // namespace

void narrow_rows(bf16* to, View<const float> rows) {
  const std::int64_t columns = rows.extent(1);
  const auto run = HWY_DYNAMIC_DISPATCH(narrow);
  for (std::int64_t i = 0; i < rows.extent(0); ++i) run(to + i * columns, rows.at(i), columns);
}

void quantise_rows(std::uint8_t* to, float* scales, View<const float> rows) {
  const std::int64_t columns = rows.extent(1);
  const auto run = HWY_DYNAMIC_DISPATCH(quantise);
  for (std::int64_t i = 0; i < rows.extent(0); ++i) scales[i] = run(to + i * columns, rows.at(i), columns);
}

void scale_codes(float* to, const std::int32_t* sums, float row_scale, const CodeScales& scales,
                 std::int64_t first, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(scale_row)
  (to, sums, row_scale, scales.scale.data() + first, scales.sum.data() + first, count);
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
