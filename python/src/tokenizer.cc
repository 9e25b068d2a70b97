#include "linnet/tokenizer.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "model.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

Tokenizer open(const std::string& path) { return Tokenizer(path); }

Tokenizer of_model(const ModelObject& model) {
  return {model.model->assets().tokenizer, model.model->config().vocabulary};
}

NumpyArray encode(const Tokenizer& self, nb::bytes text) {
  const std::string_view bytes(text.c_str(), text.size());
  std::vector<std::int32_t> tokens;
  {
    const nb::gil_scoped_release released;
    tokens = self.encode(bytes);
  }
  return numpy_of(std::move(tokens));
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

nb::bytes decode(const Tokenizer& self, nb::handle tokens) {
  const auto given = span_of<const std::int32_t>(tokens, "tokenizer", "tokens");
  std::string text;
  {
    const nb::gil_scoped_release released;
    text = self.decode(given);
  }
  return bytes_of(text);
}

}  // namespace

// The calls of a stream are short and keep the interpreter's lock, so that they take turns.
void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer")
      .def_static("open", &open, "path"_a)
      .def_static("of_model", &of_model, "model"_a)
      .def_prop_ro("vocabulary", [](const Tokenizer& self) { return self.vocabulary(); })
      .def_prop_ro("separator", [](const Tokenizer& self) { return self.separator(); })
      .def_prop_ro("end", [](const Tokenizer& self) { return self.end(); })
      .def("encode", &encode, "text"_a)
      .def("decode", &decode, "tokens"_a);
  nb::class_<TextStream>(module, "TextStream")
      .def(
          "__init__",
          [](TextStream* self, const Tokenizer& tokenizer, nb::handle before) {
            new (self) TextStream(tokenizer, span_of<const std::int32_t>(before, "text", "tokens"));
          },
          "tokenizer"_a, "before"_a)
      .def(
          "add", [](TextStream& self, std::int32_t token) { return bytes_of(self.add(token)); }, "token"_a)
      .def("finish", [](TextStream& self) { return bytes_of(self.finish()); })
      .def("context", [](const TextStream& self) { return numpy_of(self.context()); });
}

}  // namespace linnet::python
