#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

namespace linnet {

/// Keeps what the body of the lowest index has thrown, of those of a loop that runs to its end: so it does
/// not depend on threads.
class FirstFailure {
 public:
  /// Whether the body ended. A cancelled thread (pthread_cancel) unwinds through it, as the C library
  /// demands.
  template <class Body>
  bool guard(std::int64_t index, Body&& body) {
    try {
      body();
      return true;
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      if (!failure) throw;  // no exception of C++
      const std::lock_guard lock(mutex_);
      if (!failure_ || index < index_) {
        failure_ = failure;
        index_ = index;
      }
      return false;
    }
  }

  /// Throws what it has kept, once all bodies have ended, and keeps nothing then.
  void rethrow() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::int64_t index_ = 0;
};

}  // namespace linnet
