#include "linnet/context.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/context_impl.h"
#include "base/fail.h"
#include "base/thread_pool.h"

namespace linnet {
namespace {

int checked_threads(int threads) {
  if (threads < 0 || threads > Context::most_threads)
    fail<UsageError>("context", "expected 0 threads, for one per processor, or 1 … {}, got {}",
                     Context::most_threads, threads);
  return threads == 0 ? std::min(available_processors(), Context::most_threads) : threads;
}

}  // namespace

int available_processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(CPU_COUNT(&set), 1);
#endif
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

Context::Context(int threads) : impl_(std::make_unique<Impl>(checked_threads(threads))) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

int Context::threads() const { return impl_->threads(); }
std::size_t Context::workspace_bytes() const { return impl_->workspace_bytes(); }

Context::Impl::Impl(int threads) : threads_(threads) {
  if (threads > 1) pool_ = std::make_unique<ThreadPool>(threads);
}
Context::Impl::~Impl() = default;

std::size_t Context::Impl::workspace_bytes() const {
  std::size_t sum = arena_.bytes();
  if (pool_ != nullptr)
    for (const Context& own : pool_->contexts()) sum += own.workspace_bytes();
  return sum;
}

std::span<Context> Context::Impl::contexts_of_threads() {
  return pool_ != nullptr ? std::span(pool_->contexts()) : std::span<Context>();
}

void share_loop(Context& context, std::int64_t count, LoopBody body) {
  context.impl().pool()->run(count, body);
}

}  // namespace linnet
