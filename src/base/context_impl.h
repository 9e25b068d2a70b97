#pragma once

#include <memory>
#include <span>

#include "base/hidden.h"
#include "base/workspace.h"
#include "linnet/context.h"

namespace linnet {

class ThreadPool;

/// Working memory and, of a context of several threads, the threads.
class LINNET_HIDDEN Context::Impl {
 public:
  explicit Impl(int threads);
  ~Impl();

  int threads() const { return threads_; }
  Arena& arena() { return arena_; }
  ThreadPool* pool() { return pool_.get(); }
  std::size_t workspace_bytes() const;

  /// Those that loop bodies get, one per thread; none where there is one thread.
  std::span<Context> contexts_of_threads();

 private:
  int threads_;
  Arena arena_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace linnet
