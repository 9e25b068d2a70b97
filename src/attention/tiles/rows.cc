#include "attention/tiles/rows.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/tiles/rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/tiles/rows-inl.h"
#include "kernels/lanes-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

void read_row(float* to, const InputRows& rows, std::int64_t row) { load_row(to, rows, row); }
void write_row(const OutputRows& rows, std::int64_t row, const float* from) { store_row(rows, row, from); }
void add_row(float* to, const float* from, std::int64_t count) {
  kernels::HWY_NAMESPACE::for_vectors(count, [&](auto lanes, std::int64_t i) HWY_ATTR {
    lanes.store(hn::Add(lanes.load(to + i), lanes.load(from + i)), to + i);
  });
}
bool none_infinite(const float* x, std::int64_t count) { return all_finite(x, count); }

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(read_row);
HWY_EXPORT(write_row);
HWY_EXPORT(add_row);
HWY_EXPORT(none_infinite);

InputRows rows_of(const ConstFloatView& tokens, std::int64_t h) {
  const std::byte* data = tokens.dtype() == DType::bf16
                              ? reinterpret_cast<const std::byte*>(tokens.as<const bf16>().at(0, h))
                              : reinterpret_cast<const std::byte*>(tokens.as<const float>().at(0, h));
  return {data, tokens.stride(0), tokens.extent(2), tokens.dtype()};
}

void read_row(float* to, const InputRows& rows, std::int64_t row) {
  HWY_DYNAMIC_DISPATCH(read_row)(to, rows, row);
}

void write_row(const OutputRows& rows, std::int64_t row, const float* from) {
  HWY_DYNAMIC_DISPATCH(write_row)(rows, row, from);
}

void add_row(float* to, const float* from, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_row)(to, from, count);
}

bool all_finite(const float* x, std::int64_t count) { return HWY_DYNAMIC_DISPATCH(none_infinite)(x, count); }

}  // namespace linnet
#endif  // HWY_ONCE
