#include "base/thread_pool.h"

#include <unistd.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include <chrono>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/float_mode.h"

namespace linnet {
namespace {

// The caller of a computation takes some tens of microseconds between two loops; a thread that sleeps needs
// about as long to wake.
constexpr std::chrono::microseconds spin_time{50};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Sleeps while the word is `value`; may wake for no reason.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
#if defined(__linux__)
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
#else
  word.wait(value);
#endif
}

/// Calls a function at the end of its scope.
template <class Function>
class AtEnd {
 public:
  explicit AtEnd(Function function) : function_(std::move(function)) {}
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  ~AtEnd() { function_(); }

 private:
  Function function_;
};

/// Wakes up to `count` threads that sleep on the word.
void wake(std::atomic<std::uint32_t>& word, int count) {
#if defined(__linux__)
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
#else
  if (count > 0) word.notify_all();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : process_(getpid()), spins_(threads <= available_processors()) {
  for (int i = 0; i < threads; ++i) contexts_.emplace_back(1);
  threads_.reserve(static_cast<std::size_t>(threads));
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { follow(i); });
  } catch (const std::system_error& error) {
    stop();
    fail("context", "expected {} threads, got {}: {}", threads, threads_.size() + 1, error.what());
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  // A child process has the objects of its parent's threads, but not the threads. What the objects name may
  // be threads that the child has started since: nothing is done with them, and no destructor runs.
  if (getpid() != process_) {
    for (std::thread& thread : threads_) new (&thread) std::thread();
    return;
  }
  stopped_.store(true, std::memory_order_seq_cst);
  publish(0);
  wake(loops_, std::numeric_limits<int>::max());
  for (std::thread& thread : threads_) thread.join();
}

template <class Ready>
bool ThreadPool::spin(Ready ready) const {
  if (ready()) return true;
  if (!spins_) return false;
  const auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 32; ++i) {
      pause();
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void ThreadPool::run(std::int64_t count, LoopBody body) {
  if (in_use_.exchange(true, std::memory_order_acquire))
    fail("context", "expected a context that is not in use, got one that another call works with");
  // Also where this thread is cancelled within a body.
  const AtEnd release([this] { in_use_.store(false, std::memory_order_release); });
  FirstFailure failure;
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
  for (std::int64_t begin = 0; begin < count; begin += most) {
    job_ = {body, begin, static_cast<std::uint32_t>(std::min(most, count - begin)), float_mode(), &failure};
    run_job();
  }
  failure.rethrow();
}

void ThreadPool::run_job() {
  const std::uint32_t done_before = done_.load(std::memory_order_relaxed);
  const std::uint32_t others = job_->count - 1;
  publish(others);  // the first index is the caller's
  const std::uint32_t sleeping = sleeping_.load(std::memory_order_seq_cst);
  if (sleeping > 0) wake(loops_, static_cast<int>(std::min(sleeping, others)));
  std::uint32_t own = 0;  // taken after the first
  // The job lives until the others are through; where this thread is cancelled, they take no more.
  const AtEnd wait([&] {
    std::uint32_t index = 0;
    while (take(index)) ++own;
    wait_for(done_before + (others - own));
  });
  do_index(contexts_.front(), 0);
  for (std::uint32_t index = 0; take(index); do_index(contexts_.front(), index)) ++own;
}

void ThreadPool::wait_for(std::uint32_t all_done) {
  for (;;) {
    if (spin([&] { return done_.load(std::memory_order_acquire) == all_done; })) return;
    caller_sleeps_.store(true, std::memory_order_seq_cst);
    const std::uint32_t done = done_.load(std::memory_order_seq_cst);
    if (done != all_done) sleep_while(done_, done);
    caller_sleeps_.store(false, std::memory_order_relaxed);
  }
}

// Begins a loop of which `left` indices are to be taken.
void ThreadPool::publish(std::uint32_t left) {
  const std::uint32_t loop = loops_.load(std::memory_order_relaxed) + 1;
  ticket_.store((std::uint64_t{loop} << 32) + left, std::memory_order_release);
  loops_.store(loop, std::memory_order_seq_cst);
}

void ThreadPool::follow(int thread) {
  Context& own = contexts_[static_cast<std::size_t>(thread)];
  const auto loop = [this] {
    return static_cast<std::uint32_t>(ticket_.load(std::memory_order_acquire) >> 32);
  };
  for (;;) {
    const std::uint32_t seen = loop();
    for (std::uint32_t index = 0; take(index);) {
      if (float_mode() != job_->float_mode) set_float_mode(job_->float_mode);
      do_index(own, index);
      // The loop's caller may return as soon as the last index is done: nothing of the job is touched then.
      done_.fetch_add(1, std::memory_order_seq_cst);
      if (caller_sleeps_.load(std::memory_order_seq_cst)) wake(done_, 1);
    }
    if (stopped_.load(std::memory_order_acquire)) return;
    if (spin([&] { return loop() != seen; })) continue;
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    if (loops_.load(std::memory_order_seq_cst) == seen) sleep_while(loops_, seen);
    sleeping_.fetch_sub(1, std::memory_order_relaxed);
  }
}

// Takes an index of the present loop; false where none is left.
bool ThreadPool::take(std::uint32_t& index) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (static_cast<std::uint32_t>(ticket) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  index = job_->count - static_cast<std::uint32_t>(ticket);
  return true;
}

void ThreadPool::do_index(Context& own, std::uint32_t index) {
  const std::int64_t i = job_->begin + index;
  job_->failure->guard(i, [&] { job_->body(own, i); });
}

}  // namespace linnet
