#include "base/threads.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/fail.h"

namespace linnet {
namespace {

std::atomic<int>& configured_threads() {
  static std::atomic<int> count{0};
  return count;
}

thread_local bool on_callers_thread = false;

/// Keeps the first exception of several threads.
class FirstException {
 public:
  template <class F>
  void guard(F&& body) {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

/// One thread that hands out loops, and others that spin until there is something to take. A ticket is a
/// loop's number and how many of its indices are left; whoever lowers it by one has the next index. While
/// indices are left or not done the loop cannot end, so what was read beside such a ticket is that loop's
/// own.
class Team {
 public:
  /// From the leading thread: returns when every index is done.
  void run(std::int64_t count, FunctionReference<void(std::int64_t)> body) {
    FirstException first;
    auto guarded = [&](std::int64_t i) { first.guard([&] { body(i); }); };
    const FunctionReference<void(std::int64_t)> job(guarded);
    job_.store(&job, std::memory_order_relaxed);
    count_.store(count, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    ticket_.store((++loops_ << index_bits) + static_cast<std::uint64_t>(count), std::memory_order_release);
    while (take()) {
    }
    for (int spins = 0; done_.load(std::memory_order_acquire) < count;) wait(spins);
    first.rethrow();
  }

  /// From every other thread, until `stop`.
  void follow() {
    for (int spins = 0; !stopped_.load(std::memory_order_acquire);) {
      if (take())
        spins = 0;
      else
        wait(spins);
    }
  }
  void stop() { stopped_.store(true, std::memory_order_release); }

  static constexpr int index_bits = 24;
  static constexpr std::int64_t most_indices = (1 << index_bits) - 1;

 private:
  // Does one index of the current loop; false where none is left.
  bool take() {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    const auto left = static_cast<std::int64_t>(ticket & most_indices);
    if (left == 0) return false;
    const auto* job = job_.load(std::memory_order_relaxed);
    const std::int64_t index = count_.load(std::memory_order_relaxed) - left;
    if (!ticket_.compare_exchange_strong(ticket, ticket - 1, std::memory_order_acq_rel)) return true;
    (*job)(index);
    done_.fetch_add(1, std::memory_order_release);
    return true;
  }

  // A moment; where a thread has waited long, another may have the core.
  static void wait(int& spins) {
    constexpr int most_spins = 20000;
    if (++spins > most_spins) return std::this_thread::yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  std::atomic<const FunctionReference<void(std::int64_t)>*> job_{nullptr};
  std::atomic<std::int64_t> count_{0};
  std::atomic<bool> stopped_{false};
  alignas(64) std::atomic<std::int64_t> done_{0};
  std::uint64_t loops_ = 0;
};

thread_local Team* led_team = nullptr;  // by this thread, while it is outside of its loops

class Leading {
 public:
  explicit Leading(Team* team) : before_(std::exchange(led_team, team)) {}
  ~Leading() { led_team = before_; }
  Leading(const Leading&) = delete;
  Leading& operator=(const Leading&) = delete;

 private:
  Team* before_;
};

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

bool in_parallel() { return on_callers_thread || (omp_in_parallel() != 0 && led_team == nullptr); }

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
  if (Team* team = led_team; team != nullptr && count <= Team::most_indices) {
    const Leading nobody(nullptr);
    return team->run(count, body);
  }
  FirstException first;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t i = 0; i < count; ++i) first.guard([&] { body(i); });
  first.rethrow();
}

void run_on_team(FunctionReference<void()> body) {
  const int threads = thread_count();
  if (threads <= 1 || in_parallel() || led_team != nullptr) return body();
  Team team;
  FirstException first;
#pragma omp parallel num_threads(threads)
  {
    if (omp_get_thread_num() == 0) {
      first.guard([&] {
        const Leading leading(&team);
        body();
      });
      team.stop();
    } else {
      team.follow();
    }
  }
  first.rethrow();
}

void parallel_blocks(std::int64_t count, std::int64_t block,
                     FunctionReference<void(std::int64_t, std::int64_t)> body) {
  parallel_for((count + block - 1) / block,
               [&](std::int64_t i) { body(i * block, std::min(count, (i + 1) * block)); });
}

}  // namespace linnet
