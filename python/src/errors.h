#pragma once

#include <nanobind/nanobind.h>

#include <mutex>
#include <string>

#include "linnet/error.h"

namespace linnet::python {

/// Throws UsageError: "[operation] expected `expected`, got `found`".
[[noreturn]] inline void refuse(const char* operation, const std::string& expected,
                                const std::string& found) {
  throw UsageError("[" + std::string(operation) + "] expected " + expected + ", got " + found);
}

/// For a call that computes: other Python threads run, and one call at a time uses the object that the mutex
/// belongs to. No Python object may be touched meanwhile.
class Computing {
 public:
  explicit Computing(std::mutex& mutex) : lock_(mutex) {}

 private:
  nanobind::gil_scoped_release released_;
  std::lock_guard<std::mutex> lock_;  // taken without the interpreter's lock, and given back first
};

// Each adds the classes and functions of a subject to the module.
void bind_errors(nanobind::module_& module);
void bind_arrays(nanobind::module_& module);
void bind_context(nanobind::module_& module);
void bind_mask(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_reference(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_session(nanobind::module_& module);
void bind_dataset(nanobind::module_& module);
void bind_torch_attention(nanobind::module_& module);
void bind_training(nanobind::module_& module);

}  // namespace linnet::python
