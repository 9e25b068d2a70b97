#include "dataset.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "linnet/run_config.h"
#include "linnet/tokenizer.h"
#include "model.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

/// The arrays of Python objects that a data set reads. Given back under the interpreter's lock, from
/// whichever thread the last reference goes.
class Kept {
 public:
  explicit Kept(std::vector<nb::object> objects) : objects_(std::move(objects)) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    const nb::gil_scoped_acquire acquired;
    objects_.clear();
  }

 private:
  std::vector<nb::object> objects_;
};

/// Examples in arrays: tokens [examples, length, fields], real numbers [examples, length, columns] or both,
/// with labels [examples] and numbers of steps [examples] where they are given.
class ArrayDataset : public PictureDataset {
 public:
  struct Arrays {
    View<const std::int32_t> tokens = {};
    View<const float> values = {};
    std::vector<std::int64_t> labels = {}, lengths = {};  // copies: what is checked must not change
    std::vector<std::int64_t> fields = {};
    ColumnStatistics statistics = {};
    std::int64_t classes = 0;
    ImageShape image = {};
    std::string tokenizer = {};
  };

  ArrayDataset(std::vector<nb::object> objects, Arrays arrays)
      : kept_(std::move(objects)), arrays_(std::move(arrays)) {}

  ImageShape image() const override { return arrays_.image; }
  std::int64_t size() const override { return extent(0); }
  std::int64_t length() const override { return extent(1); }
  std::int64_t vocabulary() const override {
    return arrays_.fields.empty() ? 0 : *std::ranges::max_element(arrays_.fields);
  }
  std::vector<std::int64_t> fields() const override { return arrays_.fields; }
  std::int64_t classes() const override { return arrays_.classes; }
  std::int64_t columns() const override { return arrays_.values.empty() ? 0 : arrays_.values.extent(2); }
  ColumnStatistics column_statistics() const override { return arrays_.statistics; }
  std::string tokenizer() const override { return arrays_.tokenizer; }
  std::int64_t steps(std::int64_t index) const override {
    return arrays_.lengths.empty() ? length() : arrays_.lengths[static_cast<std::size_t>(index)];
  }

  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    copy(arrays_.tokens, index, tokens, -1);
    std::ranges::copy(tokens, targets.begin());
    return arrays_.labels.empty() ? -1 : arrays_.labels[static_cast<std::size_t>(index)];
  }

  void read_values(std::int64_t index, std::span<float> values, std::span<float> targets) const override {
    copy(arrays_.values, index, values, std::numeric_limits<float>::quiet_NaN());
    std::ranges::copy(values, targets.begin());
  }

 private:
  std::int64_t extent(int axis) const {
    return arrays_.values.empty() ? arrays_.tokens.extent(axis) : arrays_.values.extent(axis);
  }

  /// The steps of an example, and `padding` behind them.
  template <class T>
  void copy(View<const T> from, std::int64_t index, std::span<T> to, T padding) const {
    if (from.empty()) return;
    auto next = to.begin();
    for (std::int64_t step = 0; step < steps(index); ++step)
      next = std::copy_n(from.at(index, step), from.extent(2), next);
    std::fill(next, to.end(), padding);
  }

  Kept kept_;
  Arrays arrays_;
};

void check_values(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    refuse("dataset", std::string(what) + " in " + std::to_string(least) + " ... " + std::to_string(most),
           std::to_string(value));
}

std::vector<std::int64_t> per_example(nb::handle values, const char* name, std::int64_t examples) {
  if (values.is_none()) return {};
  const auto span = span_of<const std::int64_t>(values, "dataset", name);
  if (static_cast<std::int64_t>(span.size()) != examples)
    refuse("dataset", std::string(name) + " for " + std::to_string(examples) + " examples",
           std::to_string(span.size()));
  return {span.begin(), span.end()};
}

/// Tokens that are no padding have been checked: each is below the number of values of its field.
DatasetObject from_arrays(nb::object tokens, nb::object values, nb::object labels, nb::object lengths,
                          const std::vector<std::int64_t>& fields, const std::vector<double>& mean,
                          const std::vector<double>& deviation, std::int64_t classes, std::int64_t height,
                          std::int64_t width, std::int64_t channels, const Tokenizer* tokenizer) {
  ArrayDataset::Arrays arrays{.fields = fields,
                              .statistics = {mean, deviation},
                              .classes = classes,
                              .image = {height, width, channels}};
  if (tokenizer != nullptr) arrays.tokenizer = tokenizer->bytes();
  if (!tokens.is_none()) arrays.tokens = view_of<const std::int32_t>(tokens, "dataset", "tokens");
  if (!values.is_none()) arrays.values = view_of<const float>(values, "dataset", "values");
  const auto check_shape = [](const char* what, const auto& view) {
    if (view.rank() != 3 || view.size() == 0)
      refuse("dataset", std::string(what) + ", none of them 0", to_string(view.shape()));
  };
  if (!tokens.is_none()) check_shape("tokens [examples, steps, fields]", arrays.tokens);
  if (!values.is_none()) check_shape("values [examples, steps, columns]", arrays.values);
  const std::span<const std::int64_t> shape =
      tokens.is_none() ? arrays.values.shape() : arrays.tokens.shape();
  if (!tokens.is_none() && !values.is_none() &&
      (arrays.values.extent(0) != shape[0] || arrays.values.extent(1) != shape[1]))
    refuse("dataset",
           "values of the " + std::to_string(shape[0]) + " examples and " + std::to_string(shape[1]) +
               " steps of the tokens",
           to_string(arrays.values.shape()));
  const std::int64_t examples = shape[0];
  arrays.labels = per_example(labels, "labels", examples);
  arrays.lengths = per_example(lengths, "lengths", examples);
  for (const std::int64_t label : arrays.labels) check_values("labels", label, 0, classes - 1);
  for (const std::int64_t known : arrays.lengths) check_values("lengths", known, 1, shape[1]);
  return {std::make_shared<ArrayDataset>(std::vector<nb::object>{tokens, values}, std::move(arrays))};
}

DatasetObject select(const DatasetObject& self, nb::handle indices) {
  const auto chosen = span_of<const std::int64_t>(indices, "dataset", "indices");
  return {select_examples(self.dataset, {chosen.begin(), chosen.end()})};
}

nb::tuple open(const DataOptions& options) {
  Datasets found;
  {
    const nb::gil_scoped_release released;
    found = open_datasets(options);
  }
  return nb::make_tuple(DatasetObject{std::move(found.training)}, DatasetObject{std::move(found.validation)});
}

/// The contents of a CSV file, where a table takes the place of files.
using Contents = std::optional<std::string>;

void take_contents(DataOptions& data, const Contents& contents) {
  if (contents) data.contents = std::make_shared<const std::string>(*contents);
}

nb::tuple open_for_run(const std::string& config, const std::string& source, const Contents& contents) {
  RunConfig run;
  run.read_json(config, "the configuration");
  if (!source.empty()) set_source(run.data, source);
  take_contents(run.data, contents);
  return open(run.data);
}

/// Data in the form that a model takes, with settings as "data.missing=forward-fill".
DataOptions options_for(const ModelObject& model, const std::string& source, const std::string& kind,
                        const std::vector<std::string>& settings, const Contents& contents) {
  RunConfig run;
  run.data = data_for_model(*model.model, source, kind);
  take_contents(run.data, contents);
  for (const std::string& assignment : settings) {
    const std::string key = assignment.substr(0, assignment.find('='));
    if (!key.starts_with("data.") || key == "data.kind" || key == "data.path")
      refuse("dataset", "settings data.* other than data.kind and data.path", key);
    run.set(assignment);
    if (key == "data.columns") choose_columns(run.data, run.data.columns);
  }
  return run.data;
}

nb::tuple open_for_model(const ModelObject& model, const std::string& source, const std::string& kind,
                         const std::vector<std::string>& settings, const Contents& contents) {
  return open(options_for(model, source, kind, settings, contents));
}

/// One part of the files of a model; "test" takes all of them, unless the settings divide them.
DatasetObject open_split(const ModelObject& model, const std::string& source, const std::string& kind,
                         const std::string& split, const std::vector<std::string>& settings,
                         const Contents& contents) {
  DataOptions options = options_for(model, source, kind, settings, contents);
  const auto divides = [](const std::string& setting) { return setting.starts_with("data.split="); };
  if (split == "test" && std::ranges::none_of(settings, divides)) take_as_test(options);
  const nb::gil_scoped_release released;
  return {open_dataset(options, split == "test"         ? Split::test
                                : split == "validation" ? Split::validation
                                                        : Split::training)};
}

nb::tuple example(const DatasetObject& self, std::int64_t index) {
  const Dataset& dataset = *self.dataset;
  if (index < 0 || index >= dataset.size())
    throw nb::index_error(("[dataset] expected an example in 0 ... " + std::to_string(dataset.size() - 1) +
                           ", got " + std::to_string(index))
                              .c_str());
  const auto elements = static_cast<std::size_t>(dataset.length()) * dataset.fields().size();
  std::vector<std::int32_t> tokens(elements), targets(elements);
  std::vector<float> values(static_cast<std::size_t>(dataset.length() * dataset.columns())),
      value_targets(static_cast<std::size_t>(dataset.length() * dataset.target_columns()));
  std::int64_t label = -1;
  {
    const nb::gil_scoped_release released;
    label = dataset.read(index, tokens, targets);
    dataset.read_values(index, values, value_targets);
  }
  return nb::make_tuple(numpy_of(std::move(tokens)), numpy_of(std::move(values)), label);
}

}  // namespace

void bind_dataset(nb::module_& module) {
  nb::class_<DatasetObject>(module, "Dataset")
      .def_static("from_arrays", &from_arrays, "tokens"_a.none(), "values"_a.none(), "labels"_a.none(),
                  "lengths"_a.none(), "fields"_a, "mean"_a, "deviation"_a, "classes"_a, "height"_a, "width"_a,
                  "channels"_a, "tokenizer"_a.none())
      .def_static("open_for_run", &open_for_run, "config"_a, "source"_a, "contents"_a.none())
      .def_static("open_for_model", &open_for_model, "model"_a, "source"_a, "kind"_a, "settings"_a,
                  "contents"_a.none())
      .def_static("open_split", &open_split, "model"_a, "source"_a, "kind"_a, "split"_a, "settings"_a,
                  "contents"_a.none())
      .def("__len__", [](const DatasetObject& self) { return self.dataset->size(); })
      .def_prop_ro("length", [](const DatasetObject& self) { return self.dataset->length(); })
      .def_prop_ro("fields", [](const DatasetObject& self) { return self.dataset->fields(); })
      .def_prop_ro("columns", [](const DatasetObject& self) { return self.dataset->columns(); })
      .def_prop_ro("vocabulary", [](const DatasetObject& self) { return self.dataset->vocabulary(); })
      .def_prop_ro("classes", [](const DatasetObject& self) { return self.dataset->classes(); })
      .def_prop_ro("image",
                   [](const DatasetObject& self) {
                     const ImageShape shape = image_shape(*self.dataset);
                     return nb::make_tuple(shape.height, shape.width, shape.channels);
                   })
      .def("example", &example, "index"_a)
      .def("select", &select, "indices"_a);
  module.def("token_of_pixel", &token_of_pixel, "pixel"_a, "levels"_a);
  module.def("pixel_of_token", &pixel_of_token, "token"_a, "levels"_a);
}

}  // namespace linnet::python
