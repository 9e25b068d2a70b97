#include "linnet/c_api.h"

#include <new>
#include <string>

#include "base/fail.h"
#include "linnet/generation.h"

struct linnet_model {
  std::shared_ptr<const linnet::Model> model;
};

struct linnet_session {
  linnet::Session session;
};

namespace linnet {
namespace {

thread_local std::string error;

linnet_status failed(linnet_status status, const char* what) {
  try {
    error = what;
  } catch (const std::bad_alloc&) {
    error.clear();
  }
  return status;
}

/// Runs `body` and turns what it throws into a status.
template <class Body>
linnet_status guarded(const Body& body) {
  try {
    body();
    return LINNET_OK;
  } catch (const UsageError& caught) {
    return failed(LINNET_USAGE, caught.what());
  } catch (const std::bad_alloc&) {
    return failed(LINNET_OUT_OF_MEMORY, "[memory] expected more memory than there is");
  } catch (const std::exception& caught) {
    return failed(LINNET_FAILED, caught.what());
  }
}

template <class T>
T& given(const char* operation, const char* what, T* pointer) {
  if (pointer == nullptr) fail<UsageError>(operation, "expected {}, got NULL", what);
  return *pointer;
}

/// `count` elements, of which NULL holds none.
template <class T>
std::span<T> elements(const char* operation, const char* what, T* pointer, std::size_t count) {
  if (count > 0) given(operation, what, pointer);
  return {pointer, count};
}

}  // namespace
}  // namespace linnet

using linnet::elements;
using linnet::given;
using linnet::guarded;

const char* linnet_error(void) { return linnet::error.c_str(); }

linnet_sampling linnet_sampling_default(void) {
  const linnet::SamplingOptions options;
  return {options.temperature, options.top_k, options.top_p, options.seed};
}

linnet_status linnet_model_load(const char* folder, linnet_model** model) {
  return guarded([&] {
    given("model", "where to put the model", model) = nullptr;
    given("model", "a folder", folder);
    *model = new linnet_model{linnet::Model::load(folder)};
  });
}

void linnet_model_free(linnet_model* model) { delete model; }

int64_t linnet_model_vocabulary(const linnet_model* model) { return model->model->config().vocabulary; }

int64_t linnet_model_classes(const linnet_model* model) { return model->model->config().classes; }

linnet_session_options linnet_session_options_default(void) {
  const linnet::Session::Options options;
  return {options.capacity, options.cache, options.threads};
}

linnet_status linnet_session_create(const linnet_model* model, int64_t streams,
                                    const linnet_session_options* options, linnet_session** session) {
  return guarded([&] {
    given("session", "where to put the session", session) = nullptr;
    const linnet_session_options chosen = options != nullptr ? *options : linnet_session_options_default();
    *session = new linnet_session{linnet::Session(
        given("session", "a model", model).model, streams,
        {.capacity = chosen.capacity, .cache = chosen.cache != 0, .threads = chosen.threads})};
  });
}

void linnet_session_free(linnet_session* session) { delete session; }

linnet_status linnet_begin(linnet_session* session, int64_t stream, int64_t label,
                           const linnet_sampling* sampling) {
  return guarded([&] {
    linnet::SamplingOptions options;
    if (sampling != nullptr)
      options = {sampling->temperature, sampling->top_k, sampling->top_p, sampling->seed};
    given("begin", "a session", session).session.begin(stream, label, options);
  });
}

linnet_status linnet_prefill(linnet_session* session, int64_t stream, const int32_t* tokens, size_t count) {
  return guarded([&] {
    given("prefill", "a session", session)
        .session.prefill(stream, elements("prefill", "tokens", tokens, count));
  });
}

linnet_status linnet_step(linnet_session* session, int32_t* tokens, const int64_t* streams, size_t count) {
  return guarded([&] {
    linnet::Session& own = given("step", "a session", session).session;
    const std::span<int32_t> drawn = elements("step", "where to put the tokens", tokens, count);
    if (streams != nullptr) return own.step(drawn, std::span(streams, count));
    own.step(drawn);
  });
}

linnet_status linnet_fork(linnet_session* session, int64_t stream, int64_t source, uint64_t seed) {
  return guarded([&] { given("fork", "a session", session).session.fork(stream, source, seed); });
}

linnet_status linnet_position(const linnet_session* session, int64_t stream, int64_t* position) {
  return guarded([&] {
    given("position", "where to put the position", position) =
        given("position", "a session", session).session.position(stream);
  });
}

linnet_status linnet_save(const linnet_session* session, int64_t stream, void* bytes, size_t capacity,
                          size_t* size) {
  return guarded([&] {
    const std::vector<std::byte> saved = given("save", "a session", session).session.save(stream);
    given("save", "where to put the size", size) = saved.size();
    if (capacity == 0) return;
    given("save", "room for the bytes", static_cast<std::byte*>(bytes));
    if (capacity < saved.size())
      linnet::fail("save", "expected room for {} bytes, got {}", saved.size(), capacity);
    std::copy(saved.begin(), saved.end(), static_cast<std::byte*>(bytes));
  });
}

linnet_status linnet_restore(linnet_session* session, int64_t stream, const void* bytes, size_t size) {
  return guarded([&] {
    given("restore", "a session", session)
        .session.restore(stream, elements("restore", "bytes", static_cast<const std::byte*>(bytes), size));
  });
}
