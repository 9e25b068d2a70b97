#pragma once

#include <nanobind/nanobind.h>

#include "linnet/mask.h"

namespace linnet::python {

/// A mask, and the array that a boolean one reads.
struct MaskObject {
  Mask mask = Mask::full();
  nanobind::object matrix = {};
};

}  // namespace linnet::python
