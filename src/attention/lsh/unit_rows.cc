#include "attention/lsh/unit_rows.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/lsh/unit_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::lsh::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::FloatTag;
using kernels::HWY_NAMESPACE::FloatVector;
using kernels::HWY_NAMESPACE::for_vectors;

void unit_rows_of(float* units, const float* rows, const float* factors, std::int64_t count,
                  std::int64_t dim) {
  for (std::int64_t i = 0; i < count; ++i, units += dim, rows += dim) {
    const FloatVector factor = hn::Set(FloatTag(), factors[i]);
    for_vectors(dim, [&](auto lanes, std::int64_t e)
                         HWY_ATTR { lanes.store(hn::Mul(factor, lanes.load(rows + e)), units + e); });
  }
}

void gradients_through(float* gradients, const float* units, const float* factors, std::int64_t count,
                       std::int64_t dim) {
  const FloatTag d;
  for (std::int64_t i = 0; i < count; ++i, gradients += dim, units += dim) {
    FloatVector sums = hn::Zero(d);
    for_vectors(dim, [&](auto lanes, std::int64_t e) HWY_ATTR {
      sums = hn::MulAdd(lanes.load(units + e), lanes.load(gradients + e), sums);
    });
    const FloatVector along = hn::SumOfLanes(d, sums), factor = hn::Set(d, factors[i]);
    for_vectors(dim, [&](auto lanes, std::int64_t e) HWY_ATTR {
      const FloatVector across = hn::NegMulAdd(along, lanes.load(units + e), lanes.load(gradients + e));
      lanes.store(hn::Mul(factor, across), gradients + e);
    });
  }
}

}  // namespace linnet::lsh::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::lsh {

HWY_EXPORT(unit_rows_of);
HWY_EXPORT(gradients_through);

void unit_rows(float* units, const float* rows, const float* factors, std::int64_t count, std::int64_t dim) {
  HWY_DYNAMIC_DISPATCH(unit_rows_of)(units, rows, factors, count, dim);
}

void through_unit_rows(float* gradients, const float* units, const float* factors, std::int64_t count,
                       std::int64_t dim) {
  HWY_DYNAMIC_DISPATCH(gradients_through)(gradients, units, factors, count, dim);
}

}  // namespace linnet::lsh
#endif  // HWY_ONCE
