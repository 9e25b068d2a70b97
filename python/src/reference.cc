#include "linnet/reference.h"

#include <nanobind/nanobind.h>

#include "arrays.h"
#include "errors.h"
#include "mask.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

ReferenceInputs inputs_of(const char* operation, nb::handle query, nb::handle key, nb::handle value,
                          const MaskObject& mask, nb::handle decay, nb::handle key_projection,
                          nb::handle value_projection) {
  return {.query = view_of<const double>(query, operation, "q"),
          .key = view_of<const double>(key, operation, "k"),
          .value = view_of<const double>(value, operation, "v"),
          .mask = mask.mask,
          .decay = optional_view<const double>(decay, operation, "decay"),
          .key_projection = optional_view<const double>(key_projection, operation, "key_projection"),
          .value_projection = optional_view<const double>(value_projection, operation, "value_projection")};
}

void forward(const AttentionOptions& options, nb::handle out, nb::handle query, nb::handle key,
             nb::handle value, const MaskObject& mask, nb::handle decay, nb::handle key_projection,
             nb::handle value_projection) {
  constexpr const char* operation = "attention";
  const ReferenceInputs inputs =
      inputs_of(operation, query, key, value, mask, decay, key_projection, value_projection);
  const auto result = view_of<double>(out, operation, "out");
  const nb::gil_scoped_release released;
  reference_forward(options, result, inputs);
}

void backward(const AttentionOptions& options, nb::handle grad_query, nb::handle grad_key,
              nb::handle grad_value, nb::handle grad_out, nb::handle query, nb::handle key, nb::handle value,
              const MaskObject& mask, nb::handle decay, nb::handle key_projection,
              nb::handle value_projection, nb::handle grad_decay, nb::handle grad_key_projection,
              nb::handle grad_value_projection) {
  constexpr const char* operation = "attention gradients";
  const ReferenceInputs inputs =
      inputs_of(operation, query, key, value, mask, decay, key_projection, value_projection);
  const ReferenceGradients gradients{
      .query = view_of<double>(grad_query, operation, "grad_q"),
      .key = view_of<double>(grad_key, operation, "grad_k"),
      .value = view_of<double>(grad_value, operation, "grad_v"),
      .decay = optional_view<double>(grad_decay, operation, "grad_decay"),
      .key_projection = optional_view<double>(grad_key_projection, operation, "grad_key_projection"),
      .value_projection = optional_view<double>(grad_value_projection, operation, "grad_value_projection")};
  const auto upper = view_of<const double>(grad_out, operation, "grad_out");
  const nb::gil_scoped_release released;
  reference_backward(options, gradients, upper, inputs);
}

}  // namespace

void bind_reference(nb::module_& module) {
  module.def("reference_forward", usage<&forward>, "options"_a, "out"_a, "q"_a, "k"_a, "v"_a, "mask"_a,
             "decay"_a.none() = nb::none(), "key_projection"_a.none() = nb::none(),
             "value_projection"_a.none() = nb::none(),
             "The same in double precision and quadratic time; all arrays float64 and dense.");
  module.def("reference_backward", usage<&backward>, "options"_a, "grad_q"_a, "grad_k"_a, "grad_v"_a,
             "grad_out"_a, "q"_a, "k"_a, "v"_a, "mask"_a, "decay"_a.none() = nb::none(),
             "key_projection"_a.none() = nb::none(), "value_projection"_a.none() = nb::none(),
             "grad_decay"_a.none() = nb::none(), "grad_key_projection"_a.none() = nb::none(),
             "grad_value_projection"_a.none() = nb::none(), "Its gradients.");
}

}  // namespace linnet::python
