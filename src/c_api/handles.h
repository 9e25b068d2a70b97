#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/fail.h"
#include "c_api/c_boundary.h"
#include "linnet/c_api.h"
#include "linnet/context.h"
#include "linnet/model.h"
#include "linnet/tokenizer.h"

struct linnet_model {
  std::shared_ptr<const linnet::Model> model;
  std::string config;                                       // as config.json
  mutable std::mutex mutex = {};                            // of what follows
  mutable std::optional<linnet::Tokenizer> tokenizer = {};  // made where it is used first
  struct IdleContext {
    std::int32_t threads;
    pid_t process;  // whose threads they are
    std::unique_ptr<linnet::Context> context;
  };
  mutable std::vector<IdleContext> idle = {};  // of passes that have ended, for the next ones
};

namespace linnet {

/// Contexts that a model keeps at most.
inline constexpr std::size_t most_idle_contexts = 4;

/// Calls run(context) with a context of so many threads that no other call uses, and keeps it for later ones:
/// threads are not started for every call. Where a call fails its context is let go.
template <class Run>
void with_context(const linnet_model& model, std::int32_t threads, const Run& run) {
  std::unique_ptr<Context> own;
  {
    const std::scoped_lock lock(model.mutex);
    // Threads do not survive a fork.
    const auto serves = [&](const linnet_model::IdleContext& idle) {
      return idle.threads == threads && idle.process == getpid();
    };
    const auto found = std::ranges::find_if(model.idle, serves);
    if (found != model.idle.end()) {
      own = std::move(found->context);
      model.idle.erase(found);
    }
  }
  if (own == nullptr) own = std::make_unique<Context>(threads);
  run(*own);
  try {
    const std::scoped_lock lock(model.mutex);
    if (model.idle.size() >= most_idle_contexts) model.idle.erase(model.idle.begin());
    model.idle.push_back({threads, getpid(), std::move(own)});
  } catch (const std::bad_alloc&) {  // the result is there: only the context is lost
  }
}

/// The caller's options, or the defaults for NULL.
linnet_session_options session_options_of(const char* operation, const linnet_session_options* options);

/// The streams that a caller names, each at most once; all of the session's, of which there have to be
/// `count`, for NULL.
template <class AnySession, class Run>
void with_streams(const char* operation, const AnySession& session, const std::int64_t* streams,
                  std::size_t count, const Run& run) {
  if (streams == nullptr) return run();
  if (count > static_cast<std::size_t>(session.streams()))
    fail<UsageError>(operation, "expected at most the session's {} streams, got {}", session.streams(),
                     count);
  run(elements(operation, "streams", streams, count));
}

// What both kinds of sessions answer alike.

template <class Handle>
std::int64_t streams_of(const Handle* handle) {
  return guarded_value<std::int64_t>(-1,
                                     [&] { return given("streams", "a session", handle).session.streams(); });
}

template <class Handle>
linnet_status position_of(const Handle* handle, std::int64_t stream, std::int64_t* position) {
  return guarded([&] {
    std::int64_t& found = given("position", "where to put the position", position);
    found = given("position", "a session", handle).session.position(stream);
  });
}

template <class Handle>
linnet_status limit_of(const Handle* handle, std::int64_t* limit) {
  return guarded([&] {
    std::int64_t& found = given("limit", "where to put the limit", limit);
    found = given("limit", "a session", handle).session.limit();
  });
}

template <class Handle>
linnet_status whether_it_continues(const Handle* handle, std::int64_t stream, std::int32_t* can) {
  return guarded([&] {
    std::int32_t& found = given("can continue", "where to put the answer", can);
    found = given("can continue", "a session", handle).session.can_continue(stream) ? 1 : 0;
  });
}

template <class Handle>
linnet_status save_stream(const Handle* handle, std::int64_t stream, void* bytes, std::size_t capacity,
                          std::size_t* size) {
  return guarded([&] {
    const std::vector<std::byte> saved = given("save", "a session", handle).session.save(stream);
    hand_over<std::byte>("save", "bytes", saved, static_cast<std::byte*>(bytes), capacity, size);
  });
}

template <class Handle>
linnet_status restore_stream(Handle* handle, std::int64_t stream, const void* bytes, std::size_t size) {
  return guarded([&] {
    given("restore", "a session", handle)
        .session.restore(stream, elements("restore", "bytes", static_cast<const std::byte*>(bytes), size));
  });
}

}  // namespace linnet
