#pragma once

#include <cstdint>

#include "base/parallel.h"

namespace linnet {

/// Threads that `parallel_for` may use: OpenMP's number unless `set_thread_count` was called.
int thread_count();

/// Sets the number of threads; at least 1. Results never depend on it (docs/numerics.md).
void set_thread_count(int count);

/// Index of the calling thread inside `parallel_for`, 0 outside of it; below `thread_count()`.
int thread_index();

/// Whether the caller runs inside the body of a `parallel_for`, or while an `OnCallersThread` of its own
/// lives.
bool in_parallel();

/// While it lives, `parallel_for` on this thread runs on this thread.
class OnCallersThread {
 public:
  explicit OnCallersThread(bool active = true);
  ~OnCallersThread();
  OnCallersThread(const OnCallersThread&) = delete;
  OnCallersThread& operator=(const OnCallersThread&) = delete;

 private:
  bool before_;
};

/// Calls body(i) once for every i in [0, count), shared out in order among the threads. Inside another
/// parallel_for it runs on the calling thread. The first exception of a body is thrown again here.
/// Whoever calls it must make body's work depend on i alone, never on the thread.
void parallel_for(std::int64_t count, FunctionReference<void(std::int64_t)> body);

/// The same for blocks of `block` consecutive indices: body(begin, end). The blocks depend on count and block
/// alone.
void parallel_blocks(std::int64_t count, std::int64_t block,
                     FunctionReference<void(std::int64_t, std::int64_t)> body);

/// Calls body() on this thread while the others wait by spinning, so that every `parallel_for` in it reaches
/// them within a fraction of a microsecond: for many short loops in a row. Inside another parallel_for, or
/// with one thread, only body().
void run_on_team(FunctionReference<void()> body);

}  // namespace linnet
