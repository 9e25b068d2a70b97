#include "linnet/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/fail.h"
#include "base/pages.h"

namespace linnet {

std::size_t size_of(DType type) {
  switch (type) {
    case DType::u8:
    case DType::i8:
      return 1;
    case DType::bf16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
  }
  return 0;
}

const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::i8:
      return "i8";
  }
  return "unknown";
}

std::string to_string(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void fail_view(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  if (shape.size() > static_cast<std::size_t>(View<float>::max_rank))
    fail("view", "expected at most {} dimensions, got shape {}", View<float>::max_rank, to_string(shape));
  if (strides.size() != shape.size())
    fail("view", "expected a stride for each dimension of shape {}, got strides {}", to_string(shape),
         to_string(strides));
  fail("view", "expected an innermost stride of 1, got strides {}", to_string(strides));
}

std::int64_t checked_size(std::span<const std::int64_t> shape, std::size_t element_bytes) {
  constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  // Strides are products of extents, also where another one is 0.
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) fail("tensor", "expected extents of at least 0, got shape {}", to_string(shape));
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(extent, 1), &product))
      fail<OutOfMemoryError>("tensor", "expected a size below 2^63, got shape {}", to_string(shape));
  }
  if (std::ranges::count(shape, 0) > 0) return 0;
  if (element_bytes != 0 && product > limit / static_cast<std::int64_t>(element_bytes))
    fail<OutOfMemoryError>("tensor", "expected fewer than 2^63 bytes, got shape {} of {} bytes each",
                           to_string(shape), element_bytes);
  return product;
}

Tensor::Tensor(DType type, Shape shape)
    : type_(type), shape_(std::move(shape)), size_(checked_size(shape_, size_of(type))) {
  if (shape_.size() > static_cast<std::size_t>(View<float>::max_rank))
    fail("tensor", "expected at most {} dimensions, got shape {}", View<float>::max_rank, to_string(shape_));
  if (bytes() != 0) {
    memory_.reset(static_cast<std::byte*>(allocate_aligned(bytes())));
    std::memset(memory_.get(), 0, bytes());
  }
}

FloatView Tensor::float_view() {
  if (type_ == DType::bf16) return view<bf16>();
  return view<float>();
}

ConstFloatView Tensor::float_view() const {
  if (type_ == DType::bf16) return view<bf16>();
  return view<float>();
}

Tensor Tensor::clone() const {
  if (shape_.empty() && size_ == 0) return {};  // the shape alone is that of one number
  Tensor copy(type_, shape_);
  if (bytes() != 0) std::memcpy(copy.raw(), raw(), bytes());
  return copy;
}

void Tensor::Free::operator()(std::byte* memory) const { std::free(memory); }

void Tensor::require(DType type) const {
  if (type != type_) fail("tensor", "expected elements of {}, got {}", name_of(type), name_of(type_));
}

}  // namespace linnet
