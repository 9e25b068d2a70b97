#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace linnet::python {

/// A whole number of Python or NumPy. Throws ArgumentTypeError for anything else, a number with a fraction
/// included, and UsageError for one of more than 64 bits; `operation` and `name` are those of the error.
std::int64_t whole_of(nanobind::handle value, const char* operation, const char* name);

/// The same of at least `least` and at most `most`.
std::int64_t whole_of(nanobind::handle value, const char* operation, const char* name, std::int64_t least,
                      std::int64_t most);

/// Whether it has items.
bool is_sequence(nanobind::handle value);

/// Those of a sequence.
std::vector<std::int64_t> wholes_of(nanobind::handle values, const char* operation, const char* name);

/// The items of a sequence. Throws ArgumentTypeError where there is none.
std::vector<nanobind::object> items_of(nanobind::handle values, const char* operation, const char* name);

}  // namespace linnet::python
