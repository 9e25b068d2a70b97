#include "dataset.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
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

std::vector<std::int64_t> numbers_of(nb::handle values, const char* name) {
  if (values.is_none()) return {};
  const auto span = span_of<const std::int64_t>(values, "dataset", name);
  return {span.begin(), span.end()};
}

DatasetObject from_arrays(nb::object tokens, nb::object values, nb::object counted, nb::object value_targets,
                          nb::object source, nb::handle lengths, nb::handle labels, nb::handle source_lengths,
                          bool paired, const std::vector<std::int64_t>& fields, std::int64_t classes,
                          std::int64_t source_vocabulary, const std::vector<std::int64_t>& image,
                          const Tokenizer* tokenizer, const std::vector<std::string>& class_names,
                          const std::vector<std::string>& column_names) {
  ExampleArrays arrays{.lengths = numbers_of(lengths, "lengths"),
                       .labels = numbers_of(labels, "labels"),
                       .paired = paired,
                       .source_lengths = numbers_of(source_lengths, "source_lengths"),
                       .fields = fields,
                       .classes = classes,
                       .source_vocabulary = source_vocabulary,
                       .image = {image.at(0), image.at(1), image.at(2)},
                       .class_names = class_names,
                       .column_names = column_names};
  if (tokenizer != nullptr) arrays.tokenizer = *tokenizer;
  const auto take = [&](auto& view, const nb::object& object, const char* name) {
    using Element = std::remove_pointer_t<decltype(view.data())>;
    if (!object.is_none()) view = view_of<Element>(object, "dataset", name);
  };
  take(arrays.tokens, tokens, "tokens");
  take(arrays.values, values, "values");
  take(arrays.counted, counted, "counted");
  take(arrays.value_targets, value_targets, "value_targets");
  take(arrays.source, source, "source");
  arrays.owner = std::make_shared<Kept>(std::vector{tokens, values, counted, value_targets, source});
  const nb::gil_scoped_release released;
  return {make_dataset(std::move(arrays))};
}

DatasetObject pack(const DatasetObject& self) {
  const nb::gil_scoped_release released;
  return {pack_examples(self.dataset)};
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
      .def_static("from_arrays", &from_arrays, "tokens"_a.none(), "values"_a.none(), "counted"_a.none(),
                  "value_targets"_a.none(), "source"_a.none(), "lengths"_a.none(), "labels"_a.none(),
                  "source_lengths"_a.none(), "paired"_a, "fields"_a, "classes"_a, "source_vocabulary"_a,
                  "image"_a, "tokenizer"_a.none(), "class_names"_a, "column_names"_a)
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
      .def("select", &select, "indices"_a)
      .def("packed", &pack)
      .def_prop_ro("target_columns", [](const DatasetObject& self) { return self.dataset->target_columns(); })
      .def_prop_ro("source_length", [](const DatasetObject& self) { return self.dataset->source_length(); })
      .def_prop_ro("source_vocabulary",
                   [](const DatasetObject& self) { return self.dataset->source_vocabulary(); })
      .def_prop_ro("class_names", [](const DatasetObject& self) { return self.dataset->class_names(); })
      .def_prop_ro("column_names", [](const DatasetObject& self) { return self.dataset->column_names(); });
  module.def("token_of_pixel", &token_of_pixel, "pixel"_a, "levels"_a);
  module.def("pixel_of_token", &pixel_of_token, "token"_a, "levels"_a);
}

}  // namespace linnet::python
