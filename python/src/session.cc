#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
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

SamplingOptions sampling_of(double temperature, std::optional<std::int64_t> top_k, double top_p,
                            std::uint64_t seed) {
  SamplingOptions sampling{.temperature = temperature, .top_p = top_p, .seed = seed};
  if (top_k) sampling.top_k = *top_k;
  return sampling;
}

void begin(SessionObject& self, std::int64_t stream, std::int64_t label, double temperature,
           std::optional<std::int64_t> top_k, double top_p, std::uint64_t seed, nb::handle source) {
  const SamplingOptions sampling = sampling_of(temperature, top_k, top_p, seed);
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

/// A Python function of (stream, field, logits), which changes the array in place. The array is its own: it
/// may outlive the call.
LogitsProcessor processor_of(SessionObject& self, nb::handle function) {
  if (function.is_none()) return {};
  return [&self, function](std::int64_t stream, std::int64_t field, std::span<float> logits) {
    const Lending turn(self.mutex);
    const nb::object row = numpy_of(std::vector<float>(logits.begin(), logits.end()));
    if (const nb::object returned = function(stream, field, row); !returned.is_none())
      refuse("step", "process_logits to change the logits in place and to return None",
             nb::cast<std::string>(nb::str(returned.type())));
    std::ranges::copy(span_of<const float>(row, "step", "logits"), logits.begin());
  };
}

void step(SessionObject& self, nb::handle tokens, const Streams& streams, nb::handle process,
          nb::handle log_probabilities) {
  const auto drawn = span_of<std::int32_t>(tokens, "step", "tokens");
  Session::StepOptions options{.process_logits = processor_of(self, process)};
  if (!log_probabilities.is_none())
    options.log_probabilities = span_of<float>(log_probabilities, "step", "log_probabilities");
  const Computing turn(self.mutex);
  if (streams)
    self.session.step(drawn, *streams, options);
  else
    self.session.step(drawn, options);
}

void set_sampling(SessionObject& self, std::int64_t stream, double temperature,
                  std::optional<std::int64_t> top_k, double top_p, std::uint64_t seed) {
  const SamplingOptions sampling = sampling_of(temperature, top_k, top_p, seed);
  const Computing turn(self.mutex);
  self.session.set_sampling(stream, sampling);
}

nb::dict sampling(SessionObject& self, std::int64_t stream) {
  SamplingOptions found;
  {
    const Computing turn(self.mutex);
    found = self.session.sampling(stream);
  }
  nb::dict result;
  result["temperature"] = found.temperature;
  result["top_k"] = found.top_k == SamplingOptions().top_k ? nb::none() : nb::cast(found.top_k);
  result["top_p"] = found.top_p;
  result["seed"] = found.seed;
  return result;
}

template <void (Session::*values_of)(std::int64_t, std::span<float>)>
NumpyArray next_values(SessionObject& self, std::int64_t stream) {
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
  using Object = SessionObject;
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
      .def("step", &step, "tokens"_a, "streams"_a.none() = nb::none(), "process_logits"_a.none() = nb::none(),
           "log_probabilities"_a.none() = nb::none())
      .def("set_sampling", usage<&set_sampling>, "stream"_a, "temperature"_a, "top_k"_a.none(), "top_p"_a,
           "seed"_a)
      .def("sampling", &sampling, "stream"_a)
      .def("logits", &next_values<&Session::logits>, "stream"_a)
      .def("probabilities", &next_values<&Session::probabilities>, "stream"_a)
      .def("save", &save, "stream"_a)
      .def("restore", &restore, "stream"_a, "saved"_a)
      .def("fork", &locked<Object, &Session::fork, std::int64_t, std::int64_t, std::uint64_t>, "stream"_a,
           "source"_a, "seed"_a)
      .def("resize", &locked<Object, &Session::resize, std::int64_t>, "streams"_a)
      .def_prop_ro("streams", &locked<Object, &Session::streams>)
      .def("position", &locked<Object, &Session::position, std::int64_t>, "stream"_a)
      .def_prop_ro("limit", &locked<Object, &Session::limit>)
      .def("can_continue", &locked<Object, &Session::can_continue, std::int64_t>, "stream"_a)
      .def("state_bytes", &locked<Object, &Session::state_bytes, std::int64_t>, "stream"_a);
}

}  // namespace linnet::python
