#include <cstdint>
#include <span>

#include "c_api/c_boundary.h"
#include "c_api/handles.h"
#include "linnet/c_api.h"
#include "linnet/generation.h"

struct linnet_number_session {
  linnet::NumberSession session;
  size_t columns, targets;  // numbers that a step takes, and that it gives
};

using linnet::elements;
using linnet::given;
using linnet::guarded;
using linnet::rows;

linnet_status linnet_number_session_create(const linnet_model* model, int64_t streams,
                                           const linnet_session_options* options,
                                           linnet_number_session** session) {
  return guarded([&] {
    given("number session", "where to put the session", session) = nullptr;
    const auto& own = given("number session", "a model", model).model;
    const linnet_session_options chosen = linnet::session_options_of("number session", options);
    if (chosen.cache != 1)
      linnet::fail<linnet::UsageError>("number session", "expected the cache 1 of streams of numbers, got {}",
                                       chosen.cache);
    *session = new linnet_number_session{
        linnet::NumberSession(own, streams, {.capacity = chosen.capacity, .threads = chosen.threads}),
        static_cast<size_t>(own->config().columns), static_cast<size_t>(own->config().target_count())};
  });
}

void linnet_number_session_free(linnet_number_session* session) { delete session; }

int64_t linnet_number_session_streams(const linnet_number_session* session) {
  return linnet::streams_of(session);
}

linnet_status linnet_number_begin(linnet_number_session* session, int64_t stream, int64_t label) {
  return guarded([&] { given("begin", "a session", session).session.begin(stream, label); });
}

linnet_status linnet_number_step(linnet_number_session* session, const float* in, float* out,
                                 const int64_t* streams, size_t count) {
  return guarded([&] {
    linnet_number_session& own = given("step", "a session", session);
    const std::span<const float> taken = rows("step", "numbers", in, count, own.columns);
    const std::span<float> given_back = rows("step", "where to put the numbers", out, count, own.targets);
    linnet::with_streams("step", own.session, streams, count,
                         [&](const auto&... named) { own.session.step(taken, given_back, named...); });
  });
}

linnet_status linnet_number_observe(linnet_number_session* session, const float* in, const int64_t* streams,
                                    size_t count) {
  return guarded([&] {
    linnet_number_session& own = given("observe", "a session", session);
    const std::span<const float> taken = rows("observe", "numbers", in, count, own.columns);
    linnet::with_streams("observe", own.session, streams, count,
                         [&](const auto&... named) { own.session.observe(taken, named...); });
  });
}

linnet_status linnet_number_densities(linnet_number_session* session, int64_t stream, float* mean,
                                      float* scale, float* freedom, size_t count) {
  return guarded([&] {
    given("densities", "a session", session)
        .session.densities(stream, elements("densities", "where to put the means", mean, count),
                           elements("densities", "where to put the scales", scale, count),
                           elements("densities", "where to put the degrees of freedom", freedom, count));
  });
}

linnet_status linnet_number_draw(linnet_number_session* session, int64_t stream, uint64_t seed,
                                 double temperature, float* out, size_t count) {
  return guarded([&] {
    given("draw", "a session", session)
        .session.draw(stream, seed, elements("draw", "where to put the numbers", out, count), temperature);
  });
}

linnet_status linnet_number_session_resize(linnet_number_session* session, int64_t streams) {
  return guarded([&] { given("resize", "a session", session).session.resize(streams); });
}

linnet_status linnet_number_fork(linnet_number_session* session, int64_t stream, int64_t source) {
  return guarded([&] { given("fork", "a session", session).session.fork(stream, source); });
}

linnet_status linnet_number_position(const linnet_number_session* session, int64_t stream,
                                     int64_t* position) {
  return linnet::position_of(session, stream, position);
}

linnet_status linnet_number_limit(const linnet_number_session* session, int64_t* limit) {
  return linnet::limit_of(session, limit);
}

linnet_status linnet_number_can_continue(const linnet_number_session* session, int64_t stream, int32_t* can) {
  return linnet::whether_it_continues(session, stream, can);
}

linnet_status linnet_number_save(const linnet_number_session* session, int64_t stream, void* bytes,
                                 size_t capacity, size_t* size) {
  return linnet::save_stream(session, stream, bytes, capacity, size);
}

linnet_status linnet_number_restore(linnet_number_session* session, int64_t stream, const void* bytes,
                                    size_t size) {
  return linnet::restore_stream(session, stream, bytes, size);
}
