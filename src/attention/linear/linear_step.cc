#include <cstddef>

#include "attention/linear/linear_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linear/linear_step.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Vec32 = hn::Vec<F32>;

float DotWithAdd(float* HWY_RESTRICT z, const float* HWY_RESTRICT q, const float* HWY_RESTRICT k,
                 std::size_t count) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  Vec32 sum = hn::Zero(d);
  std::size_t f = 0;
  for (; f + lanes <= count; f += lanes) {
    const Vec32 next = hn::Add(hn::LoadU(d, z + f), hn::LoadU(d, k + f));
    hn::StoreU(next, d, z + f);
    sum = hn::MulAdd(hn::LoadU(d, q + f), next, sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; f < count; ++f) {
    z[f] += k[f];
    total += q[f] * z[f];
  }
  return total;
}

/// kVectors vectors of columns of S and of out.
template <int kVectors>
void StepColumns(float* HWY_RESTRICT out, float* HWY_RESTRICT sums, const float* HWY_RESTRICT q,
                 const float* HWY_RESTRICT k, const float* HWY_RESTRICT v, std::size_t features,
                 std::size_t ld, float scale) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  Vec32 value[kVectors], result[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    value[i] = hn::LoadU(d, v + i * lanes);
    result[i] = hn::Zero(d);
  }
  for (std::size_t f = 0; f < features; ++f) {
    const Vec32 key = hn::Set(d, k[f]), query = hn::Set(d, q[f]);
    float* row = sums + f * ld;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const Vec32 next = hn::MulAdd(key, value[i], hn::LoadU(d, row + i * lanes));
      hn::StoreU(next, d, row + i * lanes);
      result[i] = hn::MulAdd(query, next, result[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) hn::StoreU(hn::Mul(result[i], hn::Set(d, scale)), d, out + i * lanes);
}

void StepHead(float* out, float* sums, float* z, const float* q, const float* k, const float* v,
              std::int64_t feature_count, std::int64_t value_dim, bool normalise, float epsilon) {
  const F32 d;
  const std::size_t lanes = hn::Lanes(d);
  const auto features = static_cast<std::size_t>(feature_count),
             columns = static_cast<std::size_t>(value_dim);
  const float dot = DotWithAdd(z, q, k, features);
  const float scale = normalise ? 1.0f / (dot + epsilon) : 1.0f;
  std::size_t c = 0;
  for (; c + 4 * lanes <= columns; c += 4 * lanes)
    StepColumns<4>(out + c, sums + c, q, k, v + c, features, columns, scale);
  for (; c + lanes <= columns; c += lanes)
    StepColumns<1>(out + c, sums + c, q, k, v + c, features, columns, scale);
  for (; c < columns; ++c) {
    float result = 0;
    for (std::size_t f = 0; f < features; ++f) {
      sums[f * columns + c] += k[f] * v[c];
      result += q[f] * sums[f * columns + c];
    }
    out[c] = result * scale;
  }
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(StepHead);

void linear_step_head(float* out, float* sums, float* z, const float* query_features,
                      const float* key_features, const float* value, std::int64_t features,
                      std::int64_t value_dim, bool normalise, float epsilon) {
  HWY_DYNAMIC_DISPATCH(StepHead)
  (out, sums, z, query_features, key_features, value, features, value_dim, normalise, epsilon);
}

}  // namespace linnet
#endif  // HWY_ONCE
