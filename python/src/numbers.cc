#include "numbers.h"

#include <nanobind/stl/string.h>

#include <string>

#include "errors.h"

namespace nb = nanobind;

namespace linnet::python {
namespace {

[[noreturn]] void refuse_type(nb::handle value, const char* operation, const std::string& expected) {
  throw ArgumentTypeError("[" + std::string(operation) + "] expected " + expected + ", got " +
                          nb::cast<std::string>(value.type().attr("__name__")));
}

}  // namespace

std::int64_t whole_of(nb::handle value, const char* operation, const char* name) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    refuse_type(value, operation, std::string(name) + " as a whole number");
  }
  int beyond = 0;
  const std::int64_t number = PyLong_AsLongLongAndOverflow(index.ptr(), &beyond);
  if (beyond != 0)
    refuse(operation, std::string(name) + " of at most 64 bits", nb::cast<std::string>(nb::str(index)));
  return number;
}

std::int64_t whole_of(nb::handle value, const char* operation, const char* name, std::int64_t least,
                      std::int64_t most) {
  const std::int64_t number = whole_of(value, operation, name);
  if (number < least || number > most)
    refuse(operation, std::string(name) + " in " + std::to_string(least) + " ... " + std::to_string(most),
           std::to_string(number));
  return number;
}

bool is_sequence(nb::handle value) {
  const nb::object iterator = nb::steal(PyObject_GetIter(value.ptr()));
  if (!iterator.is_valid()) PyErr_Clear();
  return iterator.is_valid();
}

std::vector<nb::object> items_of(nb::handle values, const char* operation, const char* name) {
  const nb::object iterator = nb::steal(PyObject_GetIter(values.ptr()));
  if (!iterator.is_valid()) {
    PyErr_Clear();
    refuse_type(values, operation, "a sequence of " + std::string(name));
  }
  std::vector<nb::object> items;
  while (PyObject* const item = PyIter_Next(iterator.ptr())) items.push_back(nb::steal(item));
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return items;
}

std::vector<std::int64_t> wholes_of(nb::handle values, const char* operation, const char* name) {
  std::vector<std::int64_t> numbers;
  for (const nb::object& item : items_of(values, operation, name))
    numbers.push_back(whole_of(item, operation, name));
  return numbers;
}

}  // namespace linnet::python
