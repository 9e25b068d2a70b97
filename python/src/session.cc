#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "linnet/generation.h"
#include "model.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

/// The number of logits of a session: the values of the first field; 0 where the model has no tokens.
std::int64_t first_field(const ModelConfig& config) {
  const std::vector<std::int64_t> sizes = config.field_sizes();
  return sizes.empty() ? 0 : sizes.front();
}

/// A session that any Python thread may use: its calls take turns.
struct SessionObject {
  SessionObject(const ModelObject& model, std::int64_t streams, const Session::Options& options)
      : vocabulary(first_field(model.model->config())), session(model.model, streams, options) {}

  std::int64_t vocabulary;
  Session session;
  CallMutex mutex;
};

using Streams = std::optional<std::vector<std::int64_t>>;

void begin(SessionObject& self, std::int64_t stream, std::int64_t label, double temperature,
           std::optional<std::int64_t> top_k, double top_p, std::uint64_t seed, nb::handle source) {
  SamplingOptions sampling{.temperature = temperature, .top_p = top_p, .seed = seed};
  if (top_k) sampling.top_k = *top_k;
  if (source.is_none()) {
    const Computing turn(self.mutex);
    return self.session.begin(stream, label, sampling);
  }
  const auto read = span_of<const std::int32_t>(source, "begin", "source");
  const Computing turn(self.mutex);
  self.session.begin(stream, read, sampling);
}

void prefill(SessionObject& self, std::int64_t stream, nb::handle tokens) {
  const auto given = span_of<const std::int32_t>(tokens, "prefill", "tokens");
  const Computing turn(self.mutex);
  self.session.prefill(stream, given);
}

void prefill_streams(SessionObject& self, const std::vector<std::int64_t>& streams, nb::sequence prompts) {
  std::vector<std::span<const std::int32_t>> given;
  std::vector<nb::object> kept;  // the sequence may make its elements
  for (const nb::handle prompt : prompts) {
    kept.push_back(nb::borrow(prompt));
    given.push_back(span_of<const std::int32_t>(prompt, "prefill", "tokens"));
  }
  if (given.size() != streams.size())
    refuse("prefill", std::to_string(streams.size()) + " prompts", std::to_string(given.size()));
  const Computing turn(self.mutex);
  self.session.prefill(streams, given);
}

void observe(SessionObject& self, nb::handle tokens, const Streams& streams) {
  const auto given = span_of<const std::int32_t>(tokens, "observe", "tokens");
  const Computing turn(self.mutex);
  if (streams)
    self.session.observe(given, *streams);
  else
    self.session.observe(given);
}

void step(SessionObject& self, nb::handle tokens, const Streams& streams) {
  const auto drawn = span_of<std::int32_t>(tokens, "step", "tokens");
  const Computing turn(self.mutex);
  if (streams)
    self.session.step(drawn, *streams);
  else
    self.session.step(drawn);
}

template <void (Session::*values_of)(std::int64_t, std::span<float>)>
nb::object next_values(SessionObject& self, std::int64_t stream) {
  std::vector<float> values(static_cast<std::size_t>(self.vocabulary));
  {
    const Computing turn(self.mutex);
    (self.session.*values_of)(stream, values);
  }
  return numpy_of(std::move(values));
}

nb::bytes save(SessionObject& self, std::int64_t stream) {
  std::vector<std::byte> saved;
  {
    const Computing turn(self.mutex);
    saved = self.session.save(stream);
  }
  return nb::bytes(saved.data(), saved.size());
}

void restore(SessionObject& self, std::int64_t stream, nb::bytes saved) {
  const std::span bytes(reinterpret_cast<const std::byte*>(saved.c_str()), saved.size());
  const Computing turn(self.mutex);
  self.session.restore(stream, bytes);
}

}  // namespace

void bind_session(nb::module_& module) {
  nb::class_<SessionObject>(module, "Session")
      .def(
          "__init__",
          [](SessionObject* self, const ModelObject& model, std::int64_t streams, std::int64_t capacity,
             bool cache, int threads) {
            const nb::gil_scoped_release released;
            new (self)
                SessionObject(model, streams, {.capacity = capacity, .cache = cache, .threads = threads});
          },
          "model"_a, "streams"_a, "capacity"_a, "cache"_a, "threads"_a)
      .def("begin", usage<&begin>, "stream"_a, "label"_a, "temperature"_a, "top_k"_a.none(), "top_p"_a,
           "seed"_a, "source"_a.none())
      .def("prefill", usage<&prefill>, "stream"_a, "tokens"_a)
      .def("prefill_streams", usage<&prefill_streams>, "streams"_a, "prompts"_a)
      .def("observe", usage<&observe>, "tokens"_a, "streams"_a.none() = nb::none())
      .def("step", &step, "tokens"_a, "streams"_a.none() = nb::none())
      .def("logits", &next_values<&Session::logits>, "stream"_a)
      .def("probabilities", &next_values<&Session::probabilities>, "stream"_a)
      .def("save", &save, "stream"_a)
      .def("restore", &restore, "stream"_a, "saved"_a)
      .def(
          "fork",
          [](SessionObject& self, std::int64_t stream, std::int64_t source, std::uint64_t seed) {
            const Computing turn(self.mutex);
            self.session.fork(stream, source, seed);
          },
          "stream"_a, "source"_a, "seed"_a)
      .def(
          "resize",
          [](SessionObject& self, std::int64_t streams) {
            const Computing turn(self.mutex);
            self.session.resize(streams);
          },
          "streams"_a)
      .def_prop_ro("streams",
                   [](SessionObject& self) {
                     const Computing turn(self.mutex);
                     return self.session.streams();
                   })
      .def(
          "position",
          [](SessionObject& self, std::int64_t stream) {
            const Computing turn(self.mutex);
            return self.session.position(stream);
          },
          "stream"_a)
      .def(
          "state_bytes",
          [](SessionObject& self, std::int64_t stream) {
            const Computing turn(self.mutex);
            return self.session.state_bytes(stream);
          },
          "stream"_a);
}

}  // namespace linnet::python
