#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
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

/// A session that any Python thread may use: its calls take turns.
struct NumberSessionObject {
  NumberSessionObject(const ModelObject& model, std::int64_t streams, const NumberSession::Options& options)
      : session(model.model, streams, options) {}

  NumberSession session;
  CallMutex mutex;
};

using Streams = std::optional<std::vector<std::int64_t>>;

void step(NumberSessionObject& self, nb::handle values, nb::handle predicted, const Streams& streams) {
  const auto in = span_of<const float>(values, "step", "values");
  const auto out = span_of<float>(predicted, "step", "predicted");
  const Computing turn(self.mutex);
  if (streams)
    self.session.step(in, out, *streams);
  else
    self.session.step(in, out);
}

void observe(NumberSessionObject& self, nb::handle values, const Streams& streams) {
  const auto in = span_of<const float>(values, "observe", "values");
  const Computing turn(self.mutex);
  if (streams)
    self.session.observe(in, *streams);
  else
    self.session.observe(in);
}

nb::tuple densities(NumberSessionObject& self, std::int64_t stream) {
  std::vector<float> parts[3];
  {
    const Computing turn(self.mutex);
    for (std::vector<float>& part : parts) part.resize(static_cast<std::size_t>(self.session.targets()));
    self.session.densities(stream, parts[0], parts[1], parts[2]);
  }
  return nb::make_tuple(numpy_of(std::move(parts[0])), numpy_of(std::move(parts[1])),
                        numpy_of(std::move(parts[2])));
}

NumpyArray draw(NumberSessionObject& self, std::int64_t stream, std::uint64_t seed, double temperature) {
  std::vector<float> drawn;
  {
    const Computing turn(self.mutex);
    drawn.resize(static_cast<std::size_t>(self.session.targets()));
    self.session.draw(stream, seed, drawn, temperature);
  }
  return numpy_of(std::move(drawn));
}

nb::bytes save(NumberSessionObject& self, std::int64_t stream) {
  std::vector<std::byte> saved;
  {
    const Computing turn(self.mutex);
    saved = self.session.save(stream);
  }
  return nb::bytes(saved.data(), saved.size());
}

void restore(NumberSessionObject& self, std::int64_t stream, nb::bytes saved) {
  const std::span bytes(reinterpret_cast<const std::byte*>(saved.c_str()), saved.size());
  const Computing turn(self.mutex);
  self.session.restore(stream, bytes);
}

}  // namespace

void bind_number_session(nb::module_& module) {
  using Object = NumberSessionObject;
  using S = NumberSession;
  nb::class_<NumberSessionObject>(module, "NumberSession")
      .def(
          "__init__",
          [](NumberSessionObject* self, const ModelObject& model, std::int64_t streams, std::int64_t capacity,
             int threads) {
            const nb::gil_scoped_release released;
            new (self) NumberSessionObject(model, streams, {.capacity = capacity, .threads = threads});
          },
          "model"_a, "streams"_a, "capacity"_a, "threads"_a)
      .def("begin", &locked<Object, &S::begin, std::int64_t, std::int64_t>, "stream"_a, "label"_a)
      .def("step", &step, "values"_a, "predicted"_a, "streams"_a.none() = nb::none())
      .def("observe", &observe, "values"_a, "streams"_a.none() = nb::none())
      .def("densities", &densities, "stream"_a)
      .def("draw", &draw, "stream"_a, "seed"_a, "temperature"_a)
      .def("save", &save, "stream"_a)
      .def("restore", &restore, "stream"_a, "saved"_a)
      .def("fork", &locked<Object, &S::fork, std::int64_t, std::int64_t>, "stream"_a, "source"_a)
      .def("resize", &locked<Object, &S::resize, std::int64_t>, "streams"_a)
      .def_prop_ro("streams", &locked<Object, &S::streams>)
      .def_prop_ro("targets", &locked<Object, &S::targets>)
      .def("position", &locked<Object, &S::position, std::int64_t>, "stream"_a)
      .def_prop_ro("limit", &locked<Object, &S::limit>)
      .def("can_continue", &locked<Object, &S::can_continue, std::int64_t>, "stream"_a)
      .def("state_bytes", &locked<Object, &S::state_bytes, std::int64_t>, "stream"_a);
}

}  // namespace linnet::python
