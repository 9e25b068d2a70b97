#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "base/first_failure.h"
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
  /// The present loop, or a part of it that a ticket can count.
  struct Job {
    LoopBody body;
    std::int64_t begin;
    std::uint32_t count;
    unsigned float_mode;
    FirstFailure* failure;
  };

  void stop();
  void follow(int thread);
  bool take(std::uint32_t& index);
  void do_index(Context& own, std::uint32_t index);
  void run_job();
  void wait_for(std::uint32_t all_done);
  void publish(std::uint32_t left);
  template <class Ready>
  bool spin(Ready ready) const;

  // A loop of a few microseconds pays for every cache line that goes from one thread to another. This one
  // tells of a new loop and gives out its indices: a ticket is a loop's number and how many of its indices
  // are left; whoever lowers it by one has the next index. While indices are left or not done the loop cannot
  // end, so that the job stays.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  std::optional<Job> job_;

  // Indices that the other threads have done, of all loops; the caller sleeps on it.
  alignas(64) std::atomic<std::uint32_t> done_{0};
  std::atomic<bool> caller_sleeps_{false};

  // What threads write that begin, end or sleep.
  alignas(64) std::atomic<std::uint32_t> loops_{0};  // begun; threads sleep on it
  std::atomic<std::uint32_t> sleeping_{0};           // threads
  std::atomic<bool> stopped_{false};
  std::atomic<bool> in_use_{false};

  int process_;
  bool spins_;
  std::vector<Context> contexts_;
  std::vector<std::thread> threads_;
};

}  // namespace linnet
