#include "dataset.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "linnet/run_config.h"
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

/// Examples in arrays: tokens [examples, length], with labels [examples] and numbers of tokens [examples]
/// where they are given.
class ArrayDataset : public PictureDataset {
 public:
  struct Arrays {
    View<const std::int32_t> tokens;
    std::vector<std::int64_t> labels, lengths;  // copies: what is checked must not change
  };

  ArrayDataset(std::vector<nb::object> objects, Arrays arrays, std::int64_t vocabulary, std::int64_t classes,
               ImageShape image)
      : kept_(std::move(objects)),
        arrays_(std::move(arrays)),
        vocabulary_(vocabulary),
        classes_(classes),
        image_(image) {}

  ImageShape image() const override { return image_; }
  std::int64_t size() const override { return arrays_.tokens.extent(0); }
  std::int64_t length() const override { return arrays_.tokens.extent(1); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t classes() const override { return classes_; }

  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    const std::int32_t* const example = arrays_.tokens.at(index);
    const std::int64_t known =
        arrays_.lengths.empty() ? length() : arrays_.lengths[static_cast<std::size_t>(index)];
    std::copy_n(example, known, tokens.begin());
    std::fill(tokens.begin() + known, tokens.end(), -1);
    std::ranges::copy(tokens, targets.begin());
    return arrays_.labels.empty() ? -1 : arrays_.labels[static_cast<std::size_t>(index)];
  }

 private:
  Kept kept_;
  Arrays arrays_;
  std::int64_t vocabulary_, classes_;
  ImageShape image_;
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

DatasetObject from_arrays(nb::object tokens, nb::object labels, nb::object lengths, std::int64_t vocabulary,
                          std::int64_t classes, std::int64_t height, std::int64_t width,
                          std::int64_t channels) {
  ArrayDataset::Arrays arrays;
  arrays.tokens = view_of<const std::int32_t>(tokens, "dataset", "tokens");
  if (arrays.tokens.rank() != 2 || arrays.tokens.size() == 0)
    refuse("dataset", "tokens [examples, length], neither of them 0", to_string(arrays.tokens.shape()));
  const std::int64_t examples = arrays.tokens.extent(0), length = arrays.tokens.extent(1);
  arrays.labels = per_example(labels, "labels", examples);
  arrays.lengths = per_example(lengths, "lengths", examples);
  for (const std::int64_t label : arrays.labels) check_values("labels", label, 0, classes - 1);
  for (const std::int64_t known : arrays.lengths) check_values("lengths", known, 1, length);
  for (std::int64_t i = 0; i < examples; ++i) {
    const std::int64_t known = arrays.lengths.empty() ? length : arrays.lengths[static_cast<std::size_t>(i)];
    for (std::int64_t t = 0; t < known; ++t) check_values("tokens", arrays.tokens(i, t), 0, vocabulary - 1);
  }
  return {std::make_shared<ArrayDataset>(std::vector<nb::object>{tokens}, std::move(arrays), vocabulary,
                                         classes, ImageShape{height, width, channels})};
}

nb::tuple open(const DataOptions& options) {
  Datasets found;
  {
    const nb::gil_scoped_release released;
    found = open_datasets(options);
  }
  return nb::make_tuple(DatasetObject{std::move(found.training)}, DatasetObject{std::move(found.validation)});
}

nb::tuple open_for_run(const std::string& config, const std::string& source) {
  RunConfig run;
  run.read_json(config, "the configuration");
  if (!source.empty()) set_source(run.data, source);
  return open(run.data);
}

nb::tuple open_for_model(const ModelObject& model, const std::string& source, const std::string& kind) {
  return open(data_for_model(model.model->config(), source, kind));
}

nb::tuple example(const DatasetObject& self, std::int64_t index) {
  const Dataset& dataset = *self.dataset;
  if (index < 0 || index >= dataset.size())
    throw nb::index_error(("[dataset] expected an example in 0 ... " + std::to_string(dataset.size() - 1) +
                           ", got " + std::to_string(index))
                              .c_str());
  const auto elements = static_cast<std::size_t>(dataset.length()) * dataset.fields().size();
  std::vector<std::int32_t> tokens(elements), targets(elements);
  std::int64_t label = -1;
  {
    const nb::gil_scoped_release released;
    label = dataset.read(index, tokens, targets);
  }
  return nb::make_tuple(numpy_of(std::move(tokens)), numpy_of(std::move(targets)), label);
}

}  // namespace

void bind_dataset(nb::module_& module) {
  nb::class_<DatasetObject>(module, "Dataset")
      .def_static("from_arrays", &from_arrays, "tokens"_a, "labels"_a.none(), "lengths"_a.none(),
                  "vocabulary"_a, "classes"_a, "height"_a, "width"_a, "channels"_a)
      .def_static("open_for_run", &open_for_run, "config"_a, "source"_a)
      .def_static("open_for_model", &open_for_model, "model"_a, "source"_a, "kind"_a)
      .def("__len__", [](const DatasetObject& self) { return self.dataset->size(); })
      .def_prop_ro("length", [](const DatasetObject& self) { return self.dataset->length(); })
      .def_prop_ro("vocabulary", [](const DatasetObject& self) { return self.dataset->vocabulary(); })
      .def_prop_ro("classes", [](const DatasetObject& self) { return self.dataset->classes(); })
      .def_prop_ro("image",
                   [](const DatasetObject& self) {
                     const ImageShape shape = image_shape(*self.dataset);
                     return nb::make_tuple(shape.height, shape.width, shape.channels);
                   })
      .def("example", &example, "index"_a);
  module.def("token_of_pixel", &token_of_pixel, "pixel"_a, "levels"_a);
  module.def("pixel_of_token", &pixel_of_token, "token"_a, "levels"_a);
}

}  // namespace linnet::python
