#include "mask.h"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

using Numbers = std::vector<std::int64_t>;

MaskObject boolean_mask(nb::handle visible) {
  // A matrix of NumPy with gaps between its elements is copied first.
  nb::object dense = nb::borrow(visible);
  if (nb::hasattr(visible, "flags") && !nb::cast<bool>(visible.attr("flags").attr("c_contiguous")))
    dense = nb::module_::import_("numpy").attr("ascontiguousarray")(visible);
  const auto view = view_of<const std::uint8_t>(dense, "mask", "visible");
  if (view.rank() != 3) refuse("mask", "visible [batch or 1, queries, keys]", to_string(view.shape()));
  auto matrix = std::make_shared<std::vector<std::uint8_t>>();
  matrix->reserve(static_cast<std::size_t>(view.size()));
  for (std::int64_t b = 0; b < view.extent(0); ++b)
    for (std::int64_t i = 0; i < view.extent(1); ++i) {
      const std::uint8_t* const row = view.data() + b * view.stride(0) + i * view.stride(1);
      matrix->insert(matrix->end(), row, row + view.extent(2));
    }
  const View<const std::uint8_t> kept(matrix->data(), view.shape());
  return {Mask::boolean(kept), std::move(matrix)};
}

Mask with_lengths(const Mask& mask, nb::handle given) {
  Numbers lengths = wholes_of(given, "mask", "lengths");
  if (lengths.empty()) refuse("mask", "a key length for each batch entry", "none");
  return mask.with_key_lengths(std::move(lengths));
}

/// One list of bounds for all batch entries, or one for each.
Mask with_segments(const Mask& mask, nb::handle bounds) {
  constexpr const char* name = "bounds";
  const std::vector<nb::object> items = items_of(bounds, "mask", name);
  if (!items.empty() && !is_sequence(items.front())) {
    Numbers all;
    for (const nb::object& item : items) all.push_back(whole_of(item, "mask", name));
    return mask.with_segments(std::move(all));
  }
  std::vector<Numbers> all;
  for (const nb::object& item : items) all.push_back(wholes_of(item, "mask", name));
  return mask.with_segments(std::move(all));
}

}  // namespace

void bind_mask(nb::module_& module) {
  nb::class_<MaskObject>(
      module, "Mask",
      "Which keys a query may see. Every mask except ``boolean`` is an interval per query, and "
      "costs the linear family\nlinear time, forward and backward.")
      .def_static(
          "full", [] { return MaskObject{Mask::full()}; }, "Every query sees every key.")
      .def_static(
          "causal", [] { return MaskObject{Mask::causal()}; },
          "Query i sees the keys 0 ... i, and all that an initial state holds.")
      .def_static(
          "prefix",
          [](nb::handle lengths) { return MaskObject{Mask::prefix(wholes_of(lengths, "mask", "lengths"))}; },
          "lengths"_a.none(), nb::sig("def prefix(lengths: collections.abc.Sequence[int]) -> Mask"),
          "Query i of batch entry b sees the keys up to max(i, lengths[b] - 1). One length serves all "
          "entries.")
      .def_static(
          "window",
          [](nb::handle left, nb::handle right) {
            return MaskObject{Mask::window(whole_of(left, "mask", "left"), whole_of(right, "mask", "right"))};
          },
          "left"_a.none(), "right"_a.none() = 0, nb::sig("def window(left: int, right: int = 0) -> Mask"),
          "Query i sees the keys i - left ... i + right.")
      .def_static(
          "intervals",
          [](nb::handle begin, nb::handle end) {
            return MaskObject{
                Mask::intervals(wholes_of(begin, "mask", "begin"), wholes_of(end, "mask", "end"))};
          },
          "begin"_a.none(), "end"_a.none(),
          nb::sig(
              "def intervals(begin: collections.abc.Sequence[int], end: collections.abc.Sequence[int]) -> "
              "Mask"),
          "Query i sees the keys begin[i] ... end[i] - 1. Neither may decrease.")
      .def_static(
          "boolean", &boolean_mask, "visible"_a.none(),
          "Query i of batch entry b sees key j where visible[b, i, j] is not 0: uint8 or bool [batch or 1, "
          "queries, "
          "keys], which is copied. The\ntime is quadratic in every family.")
      .def(
          "with_key_lengths",
          [](const MaskObject& self, nb::handle lengths) {
            return MaskObject{with_lengths(self.mask, lengths), self.matrix};
          },
          "lengths"_a.none(),
          nb::sig("def with_key_lengths(self, lengths: collections.abc.Sequence[int]) -> Mask"),
          "Limits batch entry b to its first lengths[b] keys; those after them are padding.")
      .def(
          "with_segments",
          [](const MaskObject& self, nb::handle bounds) {
            return MaskObject{with_segments(self.mask, bounds), self.matrix};
          },
          "bounds"_a.none(),
          nb::sig("def with_segments(self, bounds: collections.abc.Sequence[int] | "
                  "collections.abc.Sequence[collections.abc.Sequence[int]]) -> Mask"),
          "Packed sequences: no query sees a key across a bound. Bounds increase from 0 to the length; one "
          "list for "
          "all batch\nentries, or one for each.")
      .def_prop_ro("name", [](const MaskObject& self) { return self.mask.name(); })
      .def_prop_ro(
          "takes_state", [](const MaskObject& self) { return self.mask.takes_state(); },
          "Whether the mask supports an initial and a final state.")
      .def("__repr__", [](const MaskObject& self) { return "<linnet.Mask: " + self.mask.name() + ">"; });
}

}  // namespace linnet::python
