#include "arrays.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "errors.h"

namespace nb = nanobind;

namespace linnet::python {
namespace {

/// The name of the Python class, for errors.
std::string class_of(nb::handle value) {
  return nb::cast<std::string>(nb::str(value.type().attr("__name__")));
}

DType find_type(const std::string& name, const char* operation) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8, DType::i8})
    if (name == name_of(type)) return type;
  refuse(operation, "an element type among f32, bf16, f64, i32, i64, u8 and i8", name);
}

DType type_of(nb::dlpack::dtype type, const char* operation, const char* name) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) {
    return type.lanes == 1 && type.code == static_cast<std::uint8_t>(code) && type.bits == bits;
  };
  if (is(Code::Float, 32)) return DType::f32;
  if (is(Code::Bfloat, 16)) return DType::bf16;
  if (is(Code::Float, 64)) return DType::f64;
  if (is(Code::Int, 32)) return DType::i32;
  if (is(Code::Int, 64)) return DType::i64;
  if (is(Code::UInt, 8) || is(Code::Bool, 8)) return DType::u8;
  if (is(Code::Int, 8)) return DType::i8;
  refuse(operation, std::string(name) + " of float32, bfloat16, float64, int32, int64, uint8 or int8",
         "elements of " + std::to_string(type.bits) + " bits of another kind");
}

bool is_empty(const Array& array) { return std::ranges::find(array.shape, 0) != array.shape.end(); }

void check_layout(const Array& array, const char* operation, const char* name) {
  if (array.shape.size() > View<float>::max_rank)
    refuse(operation, std::string(name) + " of at most 4 dimensions", to_string(array.shape));
  if (!array.shape.empty() && array.shape.back() > 1 && array.strides.back() != 1 && !is_empty(array))
    refuse(operation, std::string(name) + " whose last axis is contiguous",
           "strides " + to_string(array.strides) + " in elements");
}

/// Strides of axes of one element, and of arrays without elements, mean nothing; views want 1 for the
/// innermost one.
void normalise_strides(Array& array) {
  if (!array.shape.empty() && (array.shape.back() <= 1 || is_empty(array))) array.strides.back() = 1;
}

Array make_array(std::uintptr_t pointer, const std::string& type, std::vector<std::int64_t> shape,
                 std::vector<std::int64_t> strides, bool writable) {
  constexpr const char* operation = "array";
  Array array{reinterpret_cast<void*>(pointer), find_type(type, operation), writable, std::move(shape),
              std::move(strides)};
  if (array.strides.size() != array.shape.size())
    refuse(operation, "as many strides as dimensions",
           to_string(array.shape) + " with strides " + to_string(array.strides));
  for (const std::int64_t extent : array.shape)
    if (extent < 0) refuse(operation, "a shape without negative numbers", to_string(array.shape));
  check_layout(array, operation, "memory");
  normalise_strides(array);
  return array;
}

template <class T>
constexpr const char* numpy_name() {
  constexpr DType type = dtype_of<T>();
  return type == DType::f32   ? "float32"
         : type == DType::f64 ? "float64"
         : type == DType::i32 ? "int32"
         : type == DType::i64 ? "int64"
         : type == DType::u8  ? "uint8"
         : type == DType::i8  ? "int8"
                              : "bfloat16";
}

void require_type(const Array& array, DType wanted, const char* wanted_name, const char* operation,
                  const char* name) {
  if (array.type != wanted) refuse(operation, std::string(name) + " of " + wanted_name, name_of(array.type));
}

void require_writable(const Array& array, const char* operation, const char* name) {
  if (!array.writable) refuse(operation, std::string("a writable ") + name, "a read-only array");
}

void require_float(const Array& array, const char* operation, const char* name) {
  if (array.type != DType::f32 && array.type != DType::bf16)
    refuse(operation, std::string(name) + " of float32 or bfloat16", name_of(array.type));
}

template <class T>
NumpyArray owned(T* data, std::span<const std::int64_t> shape, nb::capsule owner) {
  std::vector<std::size_t> extents(shape.begin(), shape.end());
  return nb::borrow<NumpyArray>(
      nb::cast(nb::ndarray<nb::numpy, T>(data, extents.size(), extents.data(), std::move(owner))));
}

}  // namespace

Array array_of(nb::handle value, const char* operation, const char* name) {
  if (nb::isinstance<Array>(value)) return nb::cast<Array>(value);
  nb::ndarray<> writable;
  nb::ndarray<nb::ro> found;
  const bool writes = nb::try_cast(value, writable, false);
  if (writes)
    found = nb::ndarray<nb::ro>(writable);
  else if (!nb::try_cast(value, found, false))
    refuse(operation, std::string(name) + " as an array", class_of(value));
  if (found.device_type() != nb::device::cpu::value)
    refuse(operation, std::string(name) + " in the memory of the CPU", "an array on another device");
  Array array;
  array.data = const_cast<void*>(static_cast<const void*>(found.data()));
  array.type = type_of(found.dtype(), operation, name);
  array.writable = writes;
  for (std::size_t i = 0; i < found.ndim(); ++i) {
    array.shape.push_back(static_cast<std::int64_t>(found.shape(i)));
    array.strides.push_back(found.stride(i));
  }
  check_layout(array, operation, name);
  normalise_strides(array);
  return array;
}

Array optional_array(nb::handle value, const char* operation, const char* name) {
  return value.is_none() ? Array{} : array_of(value, operation, name);
}

template <class T>
View<T> view_of(nb::handle value, const char* operation, const char* name) {
  const Array array = array_of(value, operation, name);
  using Element = std::remove_const_t<T>;
  require_type(array, dtype_of<Element>(), numpy_name<Element>(), operation, name);
  if (!std::is_const_v<T>) require_writable(array, operation, name);
  return array.view<T>();
}

template <class T>
View<T> optional_view(nb::handle value, const char* operation, const char* name) {
  return value.is_none() ? View<T>() : view_of<T>(value, operation, name);
}

template <class T>
std::span<T> span_of(nb::handle value, const char* operation, const char* name) {
  const View<T> view = view_of<T>(value, operation, name);
  if (!view.dense()) refuse(operation, std::string(name) + " as a contiguous array", "one with gaps");
  return {view.data(), static_cast<std::size_t>(view.size())};
}

ConstFloatView float_view_of(nb::handle value, const char* operation, const char* name) {
  const Array array = array_of(value, operation, name);
  require_float(array, operation, name);
  if (array.type == DType::bf16) return array.view<const bf16>();
  return array.view<const float>();
}

FloatView writable_float_view_of(nb::handle value, const char* operation, const char* name) {
  const Array array = array_of(value, operation, name);
  require_float(array, operation, name);
  require_writable(array, operation, name);
  if (array.type == DType::bf16) return array.view<bf16>();
  return array.view<float>();
}

NumpyArray numpy_of(Tensor tensor) {
  auto kept = std::make_unique<Tensor>(std::move(tensor));
  Tensor* const raw = kept.get();
  nb::capsule owner(kept.release(), [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  if (raw->dtype() != DType::f32) throw Error("[array] expected a tensor of f32, got another");
  return owned(raw->span<float>().data(), raw->shape(), std::move(owner));
}

template <class T>
NumpyArray numpy_of(std::vector<T> values) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  std::vector<T>* const raw = kept.get();
  nb::capsule owner(kept.release(), [](void* held) noexcept { delete static_cast<std::vector<T>*>(held); });
  const std::int64_t shape[] = {static_cast<std::int64_t>(raw->size())};
  return owned(raw->data(), shape, std::move(owner));
}

#define LINNET_ARRAYS_OF(T)                                                            \
  template View<T> view_of<T>(nb::handle, const char*, const char*);                   \
  template View<const T> view_of<const T>(nb::handle, const char*, const char*);       \
  template View<T> optional_view<T>(nb::handle, const char*, const char*);             \
  template View<const T> optional_view<const T>(nb::handle, const char*, const char*); \
  template std::span<T> span_of<T>(nb::handle, const char*, const char*);              \
  template std::span<const T> span_of<const T>(nb::handle, const char*, const char*);
LINNET_ARRAYS_OF(float)
LINNET_ARRAYS_OF(double)
LINNET_ARRAYS_OF(std::int32_t)
LINNET_ARRAYS_OF(std::int64_t)
LINNET_ARRAYS_OF(std::uint8_t)
template NumpyArray numpy_of<float>(std::vector<float>);
template NumpyArray numpy_of<double>(std::vector<double>);
template NumpyArray numpy_of<std::int32_t>(std::vector<std::int32_t>);
template NumpyArray numpy_of<std::int64_t>(std::vector<std::int64_t>);

void bind_arrays(nb::module_& module) {
  nb::class_<Array>(
      module, "Array",
      "Memory of somebody else: an address, an element type (f32, bf16, f64, i32, i64, u8, i8), a shape "
      "and strides in elements, the last of which is 1. It does not keep the memory alive.")
      .def(
          "__init__",
          [](Array* self, std::uintptr_t pointer, const std::string& dtype, std::vector<std::int64_t> shape,
             std::vector<std::int64_t> strides, bool writable) {
            new (self) Array(make_array(pointer, dtype, std::move(shape), std::move(strides), writable));
          },
          nb::arg("pointer"), nb::arg("dtype"), nb::arg("shape"), nb::arg("strides"),
          nb::arg("writable") = true)
      .def_prop_ro("shape", [](const Array& self) { return self.shape; })
      .def_prop_ro("strides", [](const Array& self) { return self.strides; })
      .def_prop_ro("dtype", [](const Array& self) { return std::string(name_of(self.type)); });
}

}  // namespace linnet::python
