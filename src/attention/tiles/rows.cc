#include "attention/tiles/rows.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/tiles/rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/tiles/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

void ReadRow(float* to, const InputRows& rows, std::int64_t row) { LoadRow(to, rows, row); }
void WriteRow(const OutputRows& rows, std::int64_t row, const float* from) { StoreRow(rows, row, from); }
bool NoneInfinite(const float* x, std::int64_t count) { return AllFinite(x, count); }

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(ReadRow);
HWY_EXPORT(WriteRow);
HWY_EXPORT(NoneInfinite);

InputRows rows_of(const ConstFloatView& tokens, std::int64_t h) {
  const std::byte* data = tokens.dtype() == DType::bf16
                              ? reinterpret_cast<const std::byte*>(tokens.as<const bf16>().at(0, h))
                              : reinterpret_cast<const std::byte*>(tokens.as<const float>().at(0, h));
  return {data, tokens.stride(0), tokens.extent(2), tokens.dtype()};
}

void read_row(float* to, const InputRows& rows, std::int64_t row) {
  HWY_DYNAMIC_DISPATCH(ReadRow)(to, rows, row);
}

void write_row(const OutputRows& rows, std::int64_t row, const float* from) {
  HWY_DYNAMIC_DISPATCH(WriteRow)(rows, row, from);
}

bool all_finite(const float* x, std::int64_t count) { return HWY_DYNAMIC_DISPATCH(NoneInfinite)(x, count); }

}  // namespace linnet
#endif  // HWY_ONCE
