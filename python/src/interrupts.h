#pragma once

#include <nanobind/nanobind.h>

#include <optional>

namespace linnet::python {

/// Whether Python has a signal to handle: the exception of its handler is then set and is thrown at the end.
class Interrupts {
 public:
  bool raised() {
    if (thrown_) return true;
    const nanobind::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() == 0) return false;
    thrown_.emplace();
    return true;
  }
  /// Under the interpreter's lock.
  void rethrow() const {
    if (thrown_) throw nanobind::python_error(*thrown_);
  }

 private:
  std::optional<nanobind::python_error> thrown_;
};

/// Runs work(stop) without the interpreter's lock, where stop() ends it after a signal, whose exception is
/// then thrown.
template <class Work>
void interruptible(const Work& work) {
  Interrupts interrupts;
  {
    const nanobind::gil_scoped_release released;
    struct Stop {};
    try {
      work([&] {
        if (interrupts.raised()) throw Stop();
      });
    } catch (const Stop&) {
    }
  }
  interrupts.rethrow();
}

}  // namespace linnet::python
