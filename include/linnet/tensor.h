#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "linnet/export.h"

namespace linnet {

/// Upper half of an IEEE single: 8 bits of exponent, 7 of fraction.
struct bf16 {
  std::uint16_t bits = 0;
};

/// Rounds to nearest, ties to even; NaN stays NaN.
inline bf16 to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

inline float to_float(bf16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

/// Element types of tensors and of model files.
enum class DType { f32, bf16, f64, i32, i64, u8, i8 };

LINNET_API std::size_t size_of(DType type);
LINNET_API const char* name_of(DType type);

template <class T>
constexpr DType dtype_of() {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<U, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<U, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<U, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<U, std::int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<U, std::uint8_t>)
    return DType::u8;
  else {
    static_assert(std::is_same_v<U, std::int8_t>, "no DType for this type");
    return DType::i8;
  }
}

using Shape = std::vector<std::int64_t>;

/// "[2, 3, 4]".
LINNET_API std::string to_string(std::span<const std::int64_t> shape);

/// Throws Error: the sentence for a view of this shape and these strides, which breaks a rule of View.
[[noreturn]] LINNET_API void fail_view(std::span<const std::int64_t> shape,
                                       std::span<const std::int64_t> strides);

/// Product of the extents. Throws Error when one is negative or the product times `element_bytes` overflows.
LINNET_API std::int64_t checked_size(std::span<const std::int64_t> shape, std::size_t element_bytes = 1);

/// A pointer with a shape and strides in elements. It does not own the memory. The innermost stride is 1 and
/// all others are free, so a head of `[batch, length, heads, dim]` is also a view. Rank 0 to 4. The
/// constructors throw Error for another rank, another number of strides than of extents or another innermost
/// stride.
template <class T>
class View {
 public:
  static constexpr int max_rank = 4;

  View() = default;

  /// A dense view: the rows of `shape` are contiguous.
  View(T* data, std::initializer_list<std::int64_t> shape)
      : View(data, std::span(shape.begin(), shape.size())) {}
  View(T* data, std::span<const std::int64_t> shape) : data_(data), rank_(static_cast<int>(shape.size())) {
    if (shape.size() > static_cast<std::size_t>(max_rank)) fail_view(shape, {});
    std::int64_t step = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      shape_[i] = shape.data()[i];
      stride_[i] = step;
      step *= shape_[i];
    }
  }
  /// The last of `strides` must be 1.
  View(T* data, std::initializer_list<std::int64_t> shape, std::initializer_list<std::int64_t> strides)
      : View(data, std::span(shape.begin(), shape.size()), std::span(strides.begin(), strides.size())) {}
  View(T* data, std::span<const std::int64_t> shape, std::span<const std::int64_t> strides)
      : data_(data), rank_(static_cast<int>(shape.size())) {
    if (shape.size() > static_cast<std::size_t>(max_rank) || strides.size() != shape.size() ||
        (!strides.empty() && strides.back() != 1))
      fail_view(shape, strides);
    std::ranges::copy(shape, shape_);
    std::ranges::copy(strides, stride_);
  }

  /// A view for writing serves as one for reading.
  operator View<const T>() const requires(!std::is_const_v<T>) {
    View<const T> result;
    result.assign(data_, rank_, shape_, stride_);
    return result;
  }

  T* data() const { return data_; }
  int rank() const { return rank_; }
  std::int64_t extent(int dimension) const { return shape_[dimension]; }
  std::int64_t stride(int dimension) const { return stride_[dimension]; }
  std::span<const std::int64_t> shape() const { return {shape_, static_cast<std::size_t>(rank_)}; }
  std::span<const std::int64_t> strides() const { return {stride_, static_cast<std::size_t>(rank_)}; }
  bool empty() const { return data_ == nullptr || size() == 0; }

  std::int64_t size() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= shape_[i];
    return product;
  }

  /// Whether the elements are contiguous.
  bool dense() const {
    std::int64_t step = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      if (shape_[i] != 1 && stride_[i] != step) return false;
      step *= shape_[i];
    }
    return true;
  }

  /// Address at the given leading indices; missing indices are 0.
  template <class... Index>
  T* at(Index... index) const {
    static_assert(sizeof...(Index) <= max_rank);
    const std::int64_t* step = stride_;
    std::int64_t offset = 0;
    ((offset += static_cast<std::int64_t>(index) * *step++), ...);
    return data_ + offset;
  }

  template <class... Index>
  T& operator()(Index... index) const {
    assert(sizeof...(Index) == static_cast<std::size_t>(rank_));
    return *at(index...);
  }

  /// Indices `begin` to `end` of one dimension.
  View slice(int dimension, std::int64_t begin, std::int64_t end) const {
    assert(0 <= begin && begin <= end && end <= shape_[dimension]);
    View result = *this;
    result.data_ += begin * stride_[dimension];
    result.shape_[dimension] = end - begin;
    return result;
  }

  /// The same dense elements under another shape.
  View reshape(std::initializer_list<std::int64_t> shape) const {
    View result(data_, shape);
    assert(dense() && result.size() == size());
    return result;
  }

 private:
  template <class>
  friend class View;

  void assign(T* data, int rank, const std::int64_t* shape, const std::int64_t* stride) {
    data_ = data;
    rank_ = rank;
    std::copy_n(shape, max_rank, shape_);
    std::copy_n(stride, max_rank, stride_);
  }

  T* data_ = nullptr;
  int rank_ = 0;
  std::int64_t shape_[max_rank] = {};
  std::int64_t stride_[max_rank] = {};
};

/// A view whose elements are f32 or bf16, which of the two is known at run time: what attention reads and
/// writes. `Byte` is std::byte, or const std::byte for reading only.
template <class Byte>
class BasicFloatView {
 public:
  BasicFloatView() = default;

  template <class T>
  requires((std::is_same_v<std::remove_const_t<T>, float> ||
            std::is_same_v<std::remove_const_t<T>, bf16>)&&(std::is_const_v<Byte> || !std::is_const_v<T>))
      BasicFloatView(View<T> view)
      : type_(dtype_of<T>()),
        bytes_(view.rank() == 0
                   ? View<Byte>()
                   : View<Byte>(reinterpret_cast<Byte*>(view.data()), view.shape(), view.strides())) {}

  operator BasicFloatView<const std::byte>() const requires(!std::is_const_v<Byte>) {
    BasicFloatView<const std::byte> result;
    result.type_ = type_;
    result.bytes_ = bytes_;
    return result;
  }

  DType dtype() const { return type_; }
  int rank() const { return bytes_.rank(); }
  std::int64_t extent(int dimension) const { return bytes_.extent(dimension); }
  std::int64_t stride(int dimension) const { return bytes_.stride(dimension); }
  std::span<const std::int64_t> shape() const { return bytes_.shape(); }
  std::int64_t size() const { return bytes_.size(); }

  /// The view as one of T, float or bf16, which must be its element type.
  template <class T>
  View<T> as() const {
    assert(type_ == dtype_of<T>() || rank() == 0);
    if (rank() == 0) return {};
    return View<T>(reinterpret_cast<T*>(bytes_.data()), bytes_.shape(), bytes_.strides());
  }

  /// Address at the given leading indices, in a view whose elements are T; null in any other.
  template <class T, class... Index>
  auto at(Index... index) const {
    using Result = Element<T>;
    if (type_ != dtype_of<T>() || rank() == 0) return static_cast<Result*>(nullptr);
    return reinterpret_cast<Result*>(bytes_.data()) + (bytes_.at(index...) - bytes_.data());
  }

  /// Indices `begin` to `end` of one dimension.
  BasicFloatView slice(int dimension, std::int64_t begin, std::int64_t end) const {
    if (type_ == DType::bf16) return as<Element<bf16>>().slice(dimension, begin, end);
    return as<Element<float>>().slice(dimension, begin, end);
  }

  /// The same dense elements under another shape.
  BasicFloatView reshape(std::initializer_list<std::int64_t> shape) const {
    if (type_ == DType::bf16) return as<Element<bf16>>().reshape(shape);
    return as<Element<float>>().reshape(shape);
  }

 private:
  template <class>
  friend class BasicFloatView;
  template <class T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  DType type_ = DType::f32;
  View<Byte> bytes_;  // strides count elements, not bytes
};
using FloatView = BasicFloatView<std::byte>;
using ConstFloatView = BasicFloatView<const std::byte>;

/// 64-byte-aligned memory with a shape and an element type. `clone` makes a copy. A tensor that was moved
/// from is empty, as one without arguments.
class LINNET_API Tensor {
 public:
  Tensor() = default;
  /// Elements are zero. Throws Error when the shape is impossible, std::bad_alloc when memory is short.
  Tensor(DType type, Shape shape);
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    type_ = std::exchange(other.type_, DType::f32);
    shape_ = std::exchange(other.shape_, {});
    size_ = std::exchange(other.size_, 0);
    memory_ = std::move(other.memory_);
    return *this;
  }

  template <class T>
  static Tensor of(Shape shape) {
    return Tensor(dtype_of<T>(), std::move(shape));
  }

  /// Throws std::bad_alloc when memory is short.
  Tensor clone() const;

  DType dtype() const { return type_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * size_of(type_); }
  void* raw() { return memory_.get(); }
  const void* raw() const { return memory_.get(); }

  /// Throws Error when T is not the tensor's element type.
  template <class T>
  View<T> view() {
    require(dtype_of<T>());
    return View<T>(reinterpret_cast<T*>(memory_.get()), std::span<const std::int64_t>(shape_));
  }
  template <class T>
  View<const T> view() const {
    require(dtype_of<T>());
    return View<const T>(reinterpret_cast<const T*>(memory_.get()), std::span<const std::int64_t>(shape_));
  }
  /// The view of an f32 or bf16 tensor. Throws Error for any other.
  FloatView float_view();
  ConstFloatView float_view() const;

  template <class T>
  std::span<T> span() {
    require(dtype_of<T>());
    return {reinterpret_cast<T*>(memory_.get()), static_cast<std::size_t>(size_)};
  }
  template <class T>
  std::span<const T> span() const {
    require(dtype_of<T>());
    return {reinterpret_cast<const T*>(memory_.get()), static_cast<std::size_t>(size_)};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  void require(DType type) const;

  DType type_ = DType::f32;
  Shape shape_;
  std::int64_t size_ = 0;
  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace linnet
