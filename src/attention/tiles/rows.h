#pragma once

#include <cstddef>
#include <cstdint>

#include "linnet/tensor.h"

namespace linnet {

/// Elements from which on a tensor is larger than the caches: stores past them pay.
inline constexpr std::int64_t kBeyondCaches = std::int64_t{1} << 20;

/// The rows of one head in a tensor of f32 or bf16: row i begins i · `stride` elements behind `data`.
template <class Byte>
struct BasicRows {
  Byte* data = nullptr;
  std::int64_t stride = 0;  ///< in elements
  std::int64_t columns = 0;
  DType type = DType::f32;

  bool half() const { return type == DType::bf16; }
  std::int64_t element() const { return half() ? sizeof(bf16) : sizeof(float); }  ///< bytes
  Byte* at(std::int64_t row) const { return data + row * element() * stride; }

  /// The rows from row `first` on.
  BasicRows from(std::int64_t first) const { return {at(first), stride, columns, type}; }

  /// The first row of rows that are f32.
  auto floats() const { return reinterpret_cast<Like<float>*>(data); }

  operator BasicRows<const std::byte>() const requires(!std::is_const_v<Byte>) {
    return {data, stride, columns, type};
  }

 private:
  template <class T>
  using Like = std::conditional_t<std::is_const_v<Byte>, const T, T>;
};
using InputRows = BasicRows<const std::byte>;
using OutputRows = BasicRows<std::byte>;

/// Dense rows of f32.
inline InputRows dense_rows(const float* data, std::int64_t columns) {
  return {reinterpret_cast<const std::byte*>(data), columns, columns, DType::f32};
}
inline OutputRows dense_rows(float* data, std::int64_t columns) {
  return {reinterpret_cast<std::byte*>(data), columns, columns, DType::f32};
}

/// Columns [first, last) of head h of batch entry b of a tensor [B, N, H, D], which may have no rows.
template <class Byte>
BasicRows<Byte> rows_of(const BasicFloatView<Byte>& tensor, std::int64_t b, std::int64_t h,
                        std::int64_t first, std::int64_t last) {
  using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
  using Half = std::conditional_t<std::is_const_v<Byte>, const bf16, bf16>;
  if (tensor.extent(1) == 0) return {nullptr, tensor.stride(1), last - first, tensor.dtype()};
  Byte* data = tensor.dtype() == DType::bf16
                   ? reinterpret_cast<Byte*>(tensor.template as<Half>().at(b, 0, h, first))
                   : reinterpret_cast<Byte*>(tensor.template as<Float>().at(b, 0, h, first));
  return {data, tensor.stride(1), last - first, tensor.dtype()};
}

/// The same, all columns.
template <class Byte>
BasicRows<Byte> rows_of(const BasicFloatView<Byte>& tensor, std::int64_t b, std::int64_t h) {
  return rows_of(tensor, b, h, 0, tensor.extent(3));
}

/// Head h of tokens [N, H, D].
InputRows rows_of(const ConstFloatView& tokens, std::int64_t h);

// What rows-inl.h has, called a row at a time from outside of the kernels.

/// to [columns] = the row, bf16 widened.
void read_row(float* to, const InputRows& rows, std::int64_t row);

/// The row = from [columns], rounded to the nearest bf16, ties to even, where the rows are bf16; NaN stays
/// NaN.
void write_row(const OutputRows& rows, std::int64_t row, const float* from);

/// to [count] += from.
void add_row(float* to, const float* from, std::int64_t count);

/// Whether none of `count` numbers is infinite or NaN.
bool all_finite(const float* x, std::int64_t count);

}  // namespace linnet
