#include "errors.h"

#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>

namespace nb = nanobind;

namespace linnet::python {
namespace {

PyObject* error_class = nullptr;
PyObject* usage_class = nullptr;
PyObject* type_class = nullptr;
PyObject* memory_class = nullptr;

PyObject* add_class(nb::module_& module, const char* name, const char* documentation,
                    const nb::object& bases) {
  const std::string full = std::string("linnet.") + name;
  PyObject* const created = PyErr_NewExceptionWithDoc(full.c_str(), documentation, bases.ptr(), nullptr);
  if (created == nullptr) throw nb::python_error();
  module.attr(name) = nb::handle(created);
  return created;  // lives as long as the process
}

void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const UsageError& error) {
    PyErr_SetString(usage_class, error.what());
  } catch (const OutOfMemoryError& error) {
    PyErr_SetString(memory_class, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(memory_class, "[memory] expected more memory than there is");
  } catch (const std::length_error&) {  // of a container of more elements than memory has
    PyErr_SetString(memory_class, "[memory] expected more memory than there is");
  } catch (const ArgumentTypeError& error) {
    PyErr_SetString(type_class, error.what());
  } catch (const Error& error) {
    PyErr_SetString(error_class, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    PyErr_SetString(PyExc_OSError, error.what());
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  error_class = add_class(module, "Error",
                          "Base of Linnet's exceptions. Its text is one sentence, "
                          "``[operation] expected ..., got ...``.",
                          nb::borrow(PyExc_Exception));
  usage_class = add_class(module, "UsageError", "An invalid option, key, shape or value of an argument.",
                          nb::make_tuple(nb::handle(error_class), nb::handle(PyExc_ValueError)));
  type_class = add_class(module, "ArgumentTypeError", "An argument of the wrong Python type or element type.",
                         nb::make_tuple(nb::handle(error_class), nb::handle(PyExc_TypeError)));
  memory_class =
      add_class(module, "OutOfMemoryError",
                "Less free memory than what is asked for needs: found before it is taken, or while it is.",
                nb::make_tuple(nb::handle(error_class), nb::handle(PyExc_MemoryError)));
  nb::register_exception_translator(translate);
}

}  // namespace linnet::python
