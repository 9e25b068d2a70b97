#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/hidden.h"
#include "base/workspace.h"
#include "linnet/context.h"

namespace linnet {

class ThreadPool;

/// Working memory, objects kept between calls and, of a context of several threads, the threads.
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

  /// The object of this type that the context keeps, made by the first call.
  template <class T>
  T& kept() {
    for (const Kept& kept : kept_)
      if (kept.type == &type_of<T>) return *static_cast<T*>(kept.object.get());
    auto made = std::make_shared<T>();
    kept_.push_back({&type_of<T>, made});
    return *made;
  }

 private:
  struct Kept {
    const char* type;
    std::shared_ptr<void> object;
  };
  template <class T>
  static constexpr char type_of = 0;

  int threads_;
  Arena arena_;
  std::vector<Kept> kept_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace linnet
