#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "linnet/context.h"

namespace linnet {

/// A reference to anything callable, which must outlive it: what std::function is without owning or
/// allocating.
template <class Signature>
class FunctionReference;

template <class Result, class... Arguments>
class FunctionReference<Result(Arguments...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionReference>) FunctionReference(F&& function)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(object_, std::forward<Arguments>(arguments)...);
  }

 private:
  void* object_;
  Result (*call_)(void*, Arguments...);
};

using LoopBody = FunctionReference<void(Context&, std::int64_t)>;

/// Calls body(own, i) once for every i in [0, count), shared out in order among the context's threads. `own`
/// is the calling thread's context of one thread: what the body calls in turn gets it and runs there. The
/// exception of the lowest index is thrown again here, after all calls. Whoever calls it must make body's
/// work depend on i alone, never on the thread. Throws Error where the context is in use already.
void share_loop(Context& context, std::int64_t count, LoopBody body);

/// The same for a body of (own, i), or of (i) where it calls nothing that needs a context. A loop of a single
/// index gets the whole context. Where the context has one thread, the first exception ends the loop.
template <class Body>
void parallel_for(Context& context, std::int64_t count, Body&& body) {
  if constexpr (!std::is_invocable_v<Body&, Context&, std::int64_t>) {
    parallel_for(context, count, [&body](Context&, std::int64_t i) { body(i); });
  } else {
    if (context.threads() > 1 && count > 1) return share_loop(context, count, body);
    for (std::int64_t i = 0; i < count; ++i) body(context, i);
  }
}

/// The same for blocks of `block` consecutive indices: body(own, begin, end) or body(begin, end). The blocks
/// depend on count and block alone.
template <class Body>
void parallel_blocks(Context& context, std::int64_t count, std::int64_t block, Body&& body) {
  parallel_for(context, (count + block - 1) / block, [&](Context& own, std::int64_t i) {
    const std::int64_t begin = i * block, end = std::min(count, (i + 1) * block);
    if constexpr (std::is_invocable_v<Body&, Context&, std::int64_t, std::int64_t>)
      body(own, begin, end);
    else
      body(begin, end);
  });
}

/// The same in runs of a few consecutive indices: body(own, i, next) is told the index that the thread goes
/// on with, whose memory it may ask for, or -1 at the end of a run.
template <class Body>
void parallel_runs(Context& context, std::int64_t count, Body&& body) {
  constexpr std::int64_t longest = 8, fewest_runs = 64;
  const std::int64_t run = std::clamp<std::int64_t>(count / fewest_runs, 1, longest);
  parallel_blocks(context, count, run, [&](Context& own, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(own, i, i + 1 < end ? i + 1 : -1);
  });
}

}  // namespace linnet
