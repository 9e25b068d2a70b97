#include "linnet/c_api.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "c_api/c_boundary.h"
#include "c_api/handles.h"
#include "linnet/generation.h"
#include "linnet/version.h"

struct linnet_session {
  linnet::Session session;
  size_t fields;  // tokens of a step
};

namespace linnet {
namespace {

// The last sentence of this thread, as much of it as there is room for. Neither a sentence nor a thread's
// first one takes memory, of which there may be none.
thread_local char error[4096];

// What the structs' first versions had; never changed where members are added.
constexpr std::size_t first_sampling_bytes = 40, first_session_options_bytes = 24,
                      first_step_options_bytes = 32;
static_assert(sizeof(linnet_sampling) >= first_sampling_bytes);
static_assert(sizeof(linnet_session_options) >= first_session_options_bytes);
static_assert(sizeof(linnet_step_options) >= first_step_options_bytes);

linnet_sampling default_sampling() {
  const SamplingOptions options;
  return {sizeof(linnet_sampling), options.temperature, options.top_k, options.top_p, options.seed};
}

SamplingOptions sampling_of(const char* operation, const linnet_sampling* sampling) {
  const linnet_sampling chosen = options_of(operation, sampling, default_sampling(), first_sampling_bytes);
  return {chosen.temperature, chosen.top_k, chosen.top_p, chosen.seed};
}

linnet_session_options default_session_options() {
  const Session::Options options;
  return {sizeof(linnet_session_options), options.capacity, options.cache, options.threads};
}

linnet_step_options default_step_options() {
  return {sizeof(linnet_step_options), nullptr, nullptr, nullptr};
}

/// For a step that draws `tokens` tokens. `options` are to outlive the result.
Session::StepOptions step_options_of(const linnet_step_options& options, size_t tokens) {
  Session::StepOptions result;
  if (options.process_logits != nullptr)
    result.process_logits = [&options](int64_t stream, int64_t field, std::span<float> logits) {
      const int32_t answer =
          options.process_logits(options.data, stream, field, logits.data(), logits.size());
      if (answer != 0)
        fail("step", "expected 0 from the function that processes logits, got {} for stream {}", answer,
             stream);
    };
  if (options.log_probabilities != nullptr) result.log_probabilities = {options.log_probabilities, tokens};
  return result;
}

}  // namespace

linnet_session_options session_options_of(const char* operation, const linnet_session_options* options) {
  return options_of(operation, options, default_session_options(), first_session_options_bytes);
}

linnet_status c_failed(linnet_status status, const char* sentence) noexcept {
  const std::size_t length = std::min(std::strlen(sentence), sizeof error - 1);
  std::memmove(error, sentence, length);
  error[length] = '\0';
  return status;
}

}  // namespace linnet

using linnet::elements;
using linnet::given;
using linnet::guarded;
using linnet::rows;

const char* linnet_error(void) { return linnet::error; }

const char* linnet_version(void) { return linnet::version(); }

linnet_status linnet_sampling_init(linnet_sampling* sampling, size_t size) {
  return guarded([&] {
    linnet::write_defaults("sampling", sampling, size, linnet::default_sampling(),
                           linnet::first_sampling_bytes);
  });
}

linnet_status linnet_session_options_init(linnet_session_options* options, size_t size) {
  return guarded([&] {
    linnet::write_defaults("session", options, size, linnet::default_session_options(),
                           linnet::first_session_options_bytes);
  });
}

linnet_status linnet_session_create(const linnet_model* model, int64_t streams,
                                    const linnet_session_options* options, linnet_session** session) {
  return guarded([&] {
    given("session", "where to put the session", session) = nullptr;
    const auto& own = given("session", "a model", model).model;
    const linnet_session_options chosen = linnet::session_options_of("session", options);
    if (chosen.cache != 0 && chosen.cache != 1)
      linnet::fail<linnet::UsageError>("session", "expected the cache 0 or 1, got {}", chosen.cache);
    const linnet::Session::Options of_session = {
        .capacity = chosen.capacity, .cache = chosen.cache != 0, .threads = chosen.threads};
    *session =
        new linnet_session{linnet::Session(own, streams, of_session), own->config().field_sizes().size()};
  });
}

void linnet_session_free(linnet_session* session) { delete session; }

int64_t linnet_session_streams(const linnet_session* session) { return linnet::streams_of(session); }

linnet_status linnet_begin(linnet_session* session, int64_t stream, int64_t label,
                           const linnet_sampling* sampling) {
  return guarded([&] {
    given("begin", "a session", session).session.begin(stream, label, linnet::sampling_of("begin", sampling));
  });
}

linnet_status linnet_begin_with_source(linnet_session* session, int64_t stream, const int32_t* source,
                                       size_t count, const linnet_sampling* sampling) {
  return guarded([&] {
    given("begin", "a session", session)
        .session.begin(stream, elements("begin", "tokens of a source", source, count),
                       linnet::sampling_of("begin", sampling));
  });
}

linnet_status linnet_prefill(linnet_session* session, int64_t stream, const int32_t* tokens, size_t count) {
  return guarded([&] {
    linnet_session& own = given("prefill", "a session", session);
    own.session.prefill(stream, rows("prefill", "tokens", tokens, count, own.fields));
  });
}

linnet_status linnet_step(linnet_session* session, int32_t* tokens, const int64_t* streams, size_t count) {
  return linnet_step_with_options(session, tokens, streams, count, nullptr);
}

linnet_status linnet_step_options_init(linnet_step_options* options, size_t size) {
  return guarded([&] {
    linnet::write_defaults("step", options, size, linnet::default_step_options(),
                           linnet::first_step_options_bytes);
  });
}

linnet_status linnet_step_with_options(linnet_session* session, int32_t* tokens, const int64_t* streams,
                                       size_t count, const linnet_step_options* options) {
  return guarded([&] {
    linnet_session& own = given("step", "a session", session);
    const std::span<int32_t> drawn = rows("step", "where to put the tokens", tokens, count, own.fields);
    const linnet_step_options chosen =
        linnet::options_of("step", options, linnet::default_step_options(), linnet::first_step_options_bytes);
    const linnet::Session::StepOptions wanted = linnet::step_options_of(chosen, drawn.size());
    linnet::with_streams("step", own.session, streams, count,
                         [&](const auto&... named) { own.session.step(drawn, named..., wanted); });
  });
}

linnet_status linnet_set_sampling(linnet_session* session, int64_t stream, const linnet_sampling* sampling) {
  return guarded([&] {
    given("sampling", "a session", session)
        .session.set_sampling(stream, linnet::sampling_of("sampling", sampling));
  });
}

linnet_status linnet_get_sampling(const linnet_session* session, int64_t stream, linnet_sampling* sampling,
                                  size_t size) {
  return guarded([&] {
    const linnet::SamplingOptions found = given("sampling", "a session", session).session.sampling(stream);
    linnet::write_defaults(
        "sampling", sampling, size,
        linnet_sampling{sizeof(linnet_sampling), found.temperature, found.top_k, found.top_p, found.seed},
        linnet::first_sampling_bytes);
  });
}

linnet_status linnet_observe(linnet_session* session, const int32_t* tokens, const int64_t* streams,
                             size_t count) {
  return guarded([&] {
    linnet_session& own = given("observe", "a session", session);
    const std::span<const int32_t> seen = rows("observe", "tokens", tokens, count, own.fields);
    linnet::with_streams("observe", own.session, streams, count,
                         [&](const auto&... named) { own.session.observe(seen, named...); });
  });
}

linnet_status linnet_logits(linnet_session* session, int64_t stream, float* logits, size_t count) {
  return guarded([&] {
    given("logits", "a session", session)
        .session.logits(stream, elements("logits", "where to put the logits", logits, count));
  });
}

linnet_status linnet_probabilities(linnet_session* session, int64_t stream, float* probabilities,
                                   size_t count) {
  return guarded([&] {
    given("probabilities", "a session", session)
        .session.probabilities(
            stream, elements("probabilities", "where to put the probabilities", probabilities, count));
  });
}

linnet_status linnet_session_resize(linnet_session* session, int64_t streams) {
  return guarded([&] { given("resize", "a session", session).session.resize(streams); });
}

linnet_status linnet_fork(linnet_session* session, int64_t stream, int64_t source, uint64_t seed) {
  return guarded([&] { given("fork", "a session", session).session.fork(stream, source, seed); });
}

linnet_status linnet_position(const linnet_session* session, int64_t stream, int64_t* position) {
  return linnet::position_of(session, stream, position);
}

linnet_status linnet_limit(const linnet_session* session, int64_t* limit) {
  return linnet::limit_of(session, limit);
}

linnet_status linnet_can_continue(const linnet_session* session, int64_t stream, int32_t* can) {
  return linnet::whether_it_continues(session, stream, can);
}

linnet_status linnet_save(const linnet_session* session, int64_t stream, void* bytes, size_t capacity,
                          size_t* size) {
  return linnet::save_stream(session, stream, bytes, capacity, size);
}

linnet_status linnet_restore(linnet_session* session, int64_t stream, const void* bytes, size_t size) {
  return linnet::restore_stream(session, stream, bytes, size);
}
