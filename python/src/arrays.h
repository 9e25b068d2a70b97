#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "linnet/tensor.h"

namespace linnet::python {

/// Memory of somebody else with an element type, a shape and strides in elements, innermost stride 1. Python
/// makes one from a pointer (`_core.Array`); arguments that are NumPy arrays become one for a call. Whoever
/// makes one keeps the memory alive.
struct Array {
  void* data = nullptr;
  DType type = DType::f32;
  bool writable = true;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  template <class T>
  View<T> view() const {
    return View<T>(static_cast<T*>(data), std::span(shape), std::span(strides));
  }
};

/// The array of an argument: an Array, or whatever has the buffer or the DLPack interface, on the CPU.
/// `operation` and `name` are those of the error. Throws UsageError unless it has one of Linnet's element
/// types, at most 4 dimensions and an innermost stride of 1.
Array array_of(nanobind::handle value, const char* operation, const char* name);

/// The same, where None gives an array without data.
Array optional_array(nanobind::handle value, const char* operation, const char* name);

/// A view of elements of T, const for arguments that are read. Throws UsageError for another element type,
/// and for memory that must not be written.
template <class T>
View<T> view_of(nanobind::handle value, const char* operation, const char* name);
template <class T>
View<T> optional_view(nanobind::handle value, const char* operation, const char* name);

/// The same for f32 and bf16.
ConstFloatView float_view_of(nanobind::handle value, const char* operation, const char* name);
FloatView writable_float_view_of(nanobind::handle value, const char* operation, const char* name);

/// The elements of a one-dimensional or dense array.
template <class T>
std::span<T> span_of(nanobind::handle value, const char* operation, const char* name);

/// A NumPy array, which signatures call by this name.
class NumpyArray : public nanobind::object {
  NB_OBJECT_DEFAULT(NumpyArray, nanobind::object, "numpy.ndarray", nanobind::ndarray_check)
};

/// NumPy arrays that own what they hold.
NumpyArray numpy_of(Tensor tensor);
template <class T>
NumpyArray numpy_of(std::vector<T> values);

}  // namespace linnet::python
