#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace linnet {

/// The threads of a context, which share out one loop at a time. The loop's caller works on it too, and does
/// all of it where the others get no processor. Between loops threads spin for `spin_time`, in which the next
/// loop of a running computation usually comes, and then sleep.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// `share_loop`, from one thread at a time.
  void run(std::int64_t count, LoopBody body);

  /// The contexts of the threads, each of one thread.
  std::vector<Context>& contexts() { return contexts_; }

 private:
  struct Job;

  void stop();
  void follow(int thread);
  bool take(Context& own);
  void run_part(std::uint32_t count, const Job& job);
  template <class Ready>
  bool spin(Ready ready) const;

  // A ticket is a loop's number and how many of its indices are left; whoever lowers it by one has the next
  // index. While indices are left or not done the loop cannot end, so what was read beside such a ticket
  // belongs to that loop.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  std::atomic<const Job*> job_{nullptr};
  std::atomic<std::uint32_t> count_{0};
  alignas(64) std::atomic<std::uint32_t> loops_{0};  // begun; threads sleep on it
  std::atomic<std::uint32_t> sleeping_{0};           // threads
  alignas(64) std::atomic<std::uint32_t> done_{0};   // indices of the present loop; its caller sleeps on it
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> in_use_{false};

  int process_;
  bool spins_;
  std::vector<Context> contexts_;
  std::vector<std::thread> threads_;
};

}  // namespace linnet
