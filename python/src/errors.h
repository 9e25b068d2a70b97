#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "linnet/error.h"

namespace linnet::python {

/// An argument of the wrong Python type: linnet.ArgumentTypeError.
class ArgumentTypeError : public Error {
 public:
  using Error::Error;
};

/// Throws UsageError: "[operation] expected `expected`, got `found`".
[[noreturn]] inline void refuse(const char* operation, const std::string& expected,
                                const std::string& found) {
  throw UsageError("[" + std::string(operation) + "] expected " + expected + ", got " + found);
}

/// `function`, which reads no files, so that whatever it refuses is an argument: its Errors are UsageErrors.
template <auto function>
struct Usage;
template <class R, class... A, R (*function)(A...)>
struct Usage<function> {
  static R call(A... arguments) {
    try {
      return function(std::forward<A>(arguments)...);
    } catch (const UsageError&) {
      throw;
    } catch (const ArgumentTypeError&) {
      throw;
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }
};
template <class C, class R, class... A, R (C::*function)(A...) const>
struct Usage<function> {
  static R member(const C& self, A... arguments) { return (self.*function)(std::forward<A>(arguments)...); }
  static constexpr auto call = &Usage<&member>::call;
};
template <auto function>
inline constexpr auto usage = Usage<function>::call;

/// The mutex of an object that calls from Python use in turn. A thread that holds it already, whose call has
/// called a Python function that now uses the object again, gets UsageError instead of waiting for itself.
class CallMutex {
 public:
  void lock() {
    const std::thread::id self = std::this_thread::get_id();
    if (owner_.load() == self)
      refuse("call", "another linnet.Context, session, state or trainer in a function that a call runs",
             "the one that the call uses");
    mutex_.lock();
    owner_.store(self);
  }
  void unlock() {
    owner_.store(std::thread::id());
    mutex_.unlock();
  }

 private:
  friend class Lending;

  std::mutex mutex_;
  std::mutex lending_;
  std::atomic<std::thread::id> owner_{};
};

/// For a Python function that a call runs on a thread of the object's own: while it lasts, that thread holds
/// the mutex, one such thread at a time, and the interpreter's lock.
class Lending {
 public:
  explicit Lending(CallMutex& mutex) : mutex_(mutex), one_(mutex.lending_) {
    owner_ = mutex_.owner_.exchange(std::this_thread::get_id());
  }
  ~Lending() { mutex_.owner_.store(owner_); }

 private:
  CallMutex& mutex_;
  std::lock_guard<std::mutex> one_;  // taken without the interpreter's lock
  std::thread::id owner_;
  nanobind::gil_scoped_acquire acquired_;
};

/// For a call that computes: other Python threads run, and one call at a time uses the object that the mutex
/// belongs to. No Python object may be touched meanwhile.
class Computing {
 public:
  explicit Computing(CallMutex& mutex) : lock_(mutex) {}

 private:
  nanobind::gil_scoped_release released_;
  std::lock_guard<CallMutex> lock_;  // taken without the interpreter's lock, and given back first
};

/// A function of the session in an object whose mutex it takes.
template <class Object, auto function, class... Arguments>
auto locked(Object& self, Arguments... arguments) {
  const Computing turn(self.mutex);
  return (self.session.*function)(arguments...);
}

// Each adds the classes and functions of a subject to the module.
void bind_errors(nanobind::module_& module);
void bind_arrays(nanobind::module_& module);
void bind_context(nanobind::module_& module);
void bind_mask(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_reference(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_session(nanobind::module_& module);
void bind_number_session(nanobind::module_& module);
void bind_series(nanobind::module_& module);
void bind_dataset(nanobind::module_& module);
void bind_tokenizer(nanobind::module_& module);
void bind_torch_attention(nanobind::module_& module);
void bind_training(nanobind::module_& module);

}  // namespace linnet::python
