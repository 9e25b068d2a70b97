#include "base/threads.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/fail.h"

namespace linnet {
namespace {

std::atomic<int>& configured_threads() {
  static std::atomic<int> count{0};
  return count;
}

thread_local bool on_callers_thread = false;

}  // namespace

int thread_count() {
  const int configured = configured_threads().load(std::memory_order_relaxed);
  return configured > 0 ? configured : omp_get_max_threads();
}

void set_thread_count(int count) {
  if (count < 1) fail<UsageError>("threads", "expected at least 1 thread, got {}", count);
  configured_threads().store(count, std::memory_order_relaxed);
}

int thread_index() { return omp_in_parallel() ? omp_get_thread_num() : 0; }

bool in_parallel() { return on_callers_thread || omp_in_parallel() != 0; }

OnCallersThread::OnCallersThread(bool active) : before_(on_callers_thread) {
  on_callers_thread = on_callers_thread || active;
}
OnCallersThread::~OnCallersThread() { on_callers_thread = before_; }

void parallel_for(std::int64_t count, FunctionReference<void(std::int64_t)> body) {
  const int threads = static_cast<int>(std::min<std::int64_t>(thread_count(), count));
  if (threads <= 1 || in_parallel()) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::exception_ptr first;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(linnet_parallel_for)
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void parallel_blocks(std::int64_t count, std::int64_t block,
                     FunctionReference<void(std::int64_t, std::int64_t)> body) {
  parallel_for((count + block - 1) / block,
               [&](std::int64_t i) { body(i * block, std::min(count, (i + 1) * block)); });
}

}  // namespace linnet
