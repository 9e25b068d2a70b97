#include "model.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "context.h"
#include "errors.h"
#include "linnet/run_config.h"
#include "linnet/series.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

/// Tokens [batch, length] with the lengths of their entries, [batch] or none.
struct Tokens {
  std::span<const std::int32_t> tokens;
  std::int64_t batch = 0, length = 0;
  std::span<const std::int64_t> key_lengths;
};

Tokens tokens_of(const char* operation, nb::handle tokens, nb::handle key_lengths) {
  const auto view = view_of<const std::int32_t>(tokens, operation, "tokens");
  if (view.rank() != 2) refuse(operation, "tokens [batch, length]", to_string(view.shape()));
  Tokens result{span_of<const std::int32_t>(tokens, operation, "tokens"), view.extent(0), view.extent(1), {}};
  if (!key_lengths.is_none())
    result.key_lengths = span_of<const std::int64_t>(key_lengths, operation, "key_lengths");
  return result;
}

ModelObject load(const std::string& folder, const std::vector<std::string>& settings) {
  const nb::gil_scoped_release released;
  return {Model::load(folder, settings)};
}

ModelObject random(const std::string& config, std::uint64_t seed) {
  const nb::gil_scoped_release released;
  RunConfig run{ModelConfig()};
  run.read_json(config, "the configuration");
  run.model.check();
  run.check_memory(false);
  return {Model::random(run.model, seed)};
}

NumpyArray logits(const ModelObject& self, SharedContext& context, nb::handle tokens,
                  nb::handle key_lengths) {
  const Tokens input = tokens_of("logits", tokens, key_lengths);
  Tensor rows;
  {
    const Computing turn(context.mutex);
    rows = self.model->forward(context.context, input.tokens, input.batch, input.length, input.key_lengths);
  }
  return numpy_of(std::move(rows));
}

NumpyArray score(const ModelObject& self, SharedContext& context, nb::handle tokens, std::int64_t label,
                 nb::handle source) {
  const auto input = span_of<const std::int32_t>(tokens, "score", "tokens");
  std::span<const std::int32_t> read;
  if (!source.is_none()) read = span_of<const std::int32_t>(source, "score", "source");
  const bool of_source = !source.is_none();
  std::vector<float> scores;
  {
    const Computing turn(context.mutex);
    scores = of_source ? self.model->score(context.context, read, input)
                       : self.model->score(context.context, input, label);
  }
  return numpy_of(std::move(scores));
}

/// Steps of which tokens [batch · length · fields] and values [batch · length · columns] may be None.
Steps steps_of(const char* operation, std::int64_t batch, std::int64_t length, nb::handle tokens,
               nb::handle values, nb::handle key_lengths) {
  Steps steps{.batch = batch, .length = length};
  if (!tokens.is_none()) steps.tokens = span_of<const std::int32_t>(tokens, operation, "tokens");
  if (!values.is_none()) steps.values = span_of<const float>(values, operation, "values");
  if (!key_lengths.is_none())
    steps.key_lengths = span_of<const std::int64_t>(key_lengths, operation, "key_lengths");
  return steps;
}

/// What `compute`, Model::hidden or Model::classify, gives for the steps.
template <auto compute>
NumpyArray rows_of(const char* operation, const ModelObject& self, SharedContext& context, std::int64_t batch,
                   std::int64_t length, nb::handle tokens, nb::handle values, nb::handle key_lengths) {
  const Steps steps = steps_of(operation, batch, length, tokens, values, key_lengths);
  Tensor rows;
  {
    const Computing turn(context.mutex);
    rows = ((*self.model).*compute)(context.context, steps);
  }
  return numpy_of(std::move(rows));
}

NumpyArray hidden(const ModelObject& self, SharedContext& context, std::int64_t batch, std::int64_t length,
                  nb::handle tokens, nb::handle values, nb::handle key_lengths) {
  using OfSteps = Tensor (Model::*)(Context&, const Steps&) const;
  return rows_of<OfSteps{&Model::hidden}>("hidden", self, context, batch, length, tokens, values,
                                          key_lengths);
}

NumpyArray classify(const ModelObject& self, SharedContext& context, std::int64_t batch, std::int64_t length,
                    nb::handle tokens, nb::handle values, nb::handle key_lengths) {
  return rows_of<&Model::classify>("classify", self, context, batch, length, tokens, values, key_lengths);
}

nb::tuple predict(const ModelObject& self, SharedContext& context, std::int64_t batch, std::int64_t length,
                  nb::handle tokens, nb::handle values, nb::handle key_lengths) {
  const Steps steps = steps_of("predict", batch, length, tokens, values, key_lengths);
  Densities densities;
  {
    const Computing turn(context.mutex);
    densities = self.model->predict(context.context, steps);
  }
  return nb::make_tuple(numpy_of(std::move(densities.mean)), numpy_of(std::move(densities.scale)),
                        numpy_of(std::move(densities.freedom)));
}

nb::tuple fill(const ModelObject& self, SharedContext& context, nb::handle tokens, nb::handle key_lengths) {
  const Tokens input = tokens_of("fill", tokens, key_lengths);
  Filling filling;
  {
    const Computing turn(context.mutex);
    filling = self.model->fill(context.context, input.tokens, input.batch, input.length, input.key_lengths);
  }
  return nb::make_tuple(numpy_of(std::move(filling.positions)), numpy_of(std::move(filling.tokens)),
                        numpy_of(std::move(filling.probabilities)));
}

std::int32_t first_input(const ModelObject& self, std::int64_t label) {
  return self.model->config().first_input(label);
}

void save(const ModelObject& self, const std::string& folder) {
  const nb::gil_scoped_release released;
  self.model->save(folder);
}

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<ModelObject>(module, "Model")
      .def_static("load", &load, "folder"_a, "settings"_a)
      .def_static("random", &random, "config"_a, "seed"_a)
      .def_prop_ro("config", [](const ModelObject& self) { return RunConfig(self.model->config()).json(); })
      .def_prop_ro("masked", [](const ModelObject& self) { return self.model->config().masked(); })
      .def_prop_ro("class_names", [](const ModelObject& self) { return self.model->assets().class_names; })
      .def_prop_ro("column_names", [](const ModelObject& self) { return column_names(*self.model); })
      .def_prop_ro("has_tokenizer",
                   [](const ModelObject& self) { return !self.model->assets().tokenizer.empty(); })
      .def_prop_ro("parameter_count", [](const ModelObject& self) { return self.model->parameter_count(); })
      .def_prop_ro("weight_bytes", [](const ModelObject& self) { return self.model->weight_bytes(); })
      .def("check_generates", [](const ModelObject& self) { self.model->config().check_generates(); })
      .def("first_input", usage<&first_input>, "label"_a)
      .def("logits", usage<&logits>, "context"_a, "tokens"_a, "key_lengths"_a.none())
      .def("hidden", usage<&hidden>, "context"_a, "batch"_a, "length"_a, "tokens"_a.none(), "values"_a.none(),
           "key_lengths"_a.none())
      .def("score", usage<&score>, "context"_a, "tokens"_a, "label"_a, "source"_a.none())
      .def("classify", usage<&classify>, "context"_a, "batch"_a, "length"_a, "tokens"_a.none(),
           "values"_a.none(), "key_lengths"_a.none())
      .def("predict", usage<&predict>, "context"_a, "batch"_a, "length"_a, "tokens"_a.none(),
           "values"_a.none(), "key_lengths"_a.none())
      .def("fill", usage<&fill>, "context"_a, "tokens"_a, "key_lengths"_a.none())
      .def("save", &save, "folder"_a);
  module.def(
      "settings",
      [] {
        nb::list rows;
        for (const Setting& setting : RunConfig().settings()) {
          nb::dict row;
          row["key"] = setting.key;
          row["type"] = setting.type;
          row["value"] = setting.value;
          row["range"] = setting.range;
          row["help"] = setting.help;
          rows.append(row);
        }
        return rows;
      },
      "All keys of a configuration: a list of dictionaries with key, type, value, range and help.");
}

}  // namespace linnet::python
