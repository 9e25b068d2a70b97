#include "linnet/series.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "interrupts.h"
#include "model.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

ModelSeries read(const ModelObject& model, const std::string& path, const std::string& missing) {
  const nb::gil_scoped_release released;
  return ModelSeries::read(model.model, path, missing);
}

ModelSeries parse(const ModelObject& model, const std::string& contents, const std::string& missing) {
  const nb::gil_scoped_release released;
  return ModelSeries::parse(model.model, contents, "the table", missing);
}

NumpyArray forecast_series(const ModelSeries& series, std::int64_t steps, std::int64_t samples,
                           std::int64_t context, std::uint64_t seed, double temperature, int threads) {
  std::vector<float> drawn;
  interruptible([&](const auto& stop) {
    drawn = forecast(series, {.steps = steps,
                              .samples = samples,
                              .context = context,
                              .seed = seed,
                              .temperature = temperature,
                              .threads = threads,
                              .progress = [&](std::int64_t, std::int64_t) { stop(); }});
  });
  return numpy_of(std::move(drawn));
}

/// The scores of a series, which Python keeps for the search of anomalies.
struct ScoresObject {
  SeriesScores scores;
};

ScoresObject score_series(const ModelSeries& series, int threads) {
  ScoresObject found;
  interruptible([&](const auto& stop) {
    found.scores = score(series, threads, [&](std::int64_t, std::int64_t) { stop(); });
  });
  return found;
}

nb::tuple anomalies(const ScoresObject& self, std::int64_t window, double threshold, double quantile,
                    std::int64_t calibrate, std::int64_t gap) {
  Anomalies found = find_anomalies(
      self.scores,
      {.window = window, .threshold = threshold, .quantile = quantile, .calibrate = calibrate, .gap = gap});
  nb::list rows;
  for (const auto& [first, last, highest, column] : found.found)
    rows.append(nb::make_tuple(first, last, highest, column));
  return nb::make_tuple(numpy_of(std::move(found.scores)), found.threshold, rows);
}

}  // namespace

void bind_series(nb::module_& module) {
  nb::class_<ModelSeries>(module, "Series")
      .def_static(
          "of",
          [](const ModelObject& model, nb::handle values) {
            return ModelSeries(model.model, view_of<const float>(values, "series", "values"));
          },
          "model"_a, "values"_a)
      .def_static("parse", &parse, "model"_a, "contents"_a, "missing"_a)
      .def_static("read", &read, "model"_a, "path"_a, "missing"_a)
      .def_prop_ro("rows", &ModelSeries::rows)
      .def_prop_ro("column_names", &ModelSeries::column_names)
      .def("time", &ModelSeries::time, "row"_a)
      .def("forecast", &forecast_series, "steps"_a, "samples"_a, "context"_a, "seed"_a, "temperature"_a,
           "threads"_a)
      .def("score", &score_series, "threads"_a);
  nb::class_<ScoresObject>(module, "SeriesScores")
      .def_prop_ro("numbers", [](const ScoresObject& self) { return numpy_of(self.scores.numbers); })
      .def_prop_ro("rows", [](const ScoresObject& self) { return numpy_of(self.scores.rows); })
      .def_prop_ro("has_context",
                   [](const ScoresObject& self) {
                     const std::vector<bool>& known = self.scores.has_context;
                     return numpy_of(std::vector<std::int32_t>(known.begin(), known.end()));
                   })
      .def_prop_ro("state_bytes", [](const ScoresObject& self) { return self.scores.state_bytes; })
      .def("anomalies", &anomalies, "window"_a, "threshold"_a, "quantile"_a, "calibrate"_a, "gap"_a);
}

}  // namespace linnet::python
