#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "linnet/mask.h"

namespace linnet::python {

/// A mask, and the matrix of a boolean one, a copy of what it was made from.
struct MaskObject {
  Mask mask = Mask::full();
  std::shared_ptr<const std::vector<std::uint8_t>> matrix = {};
};

}  // namespace linnet::python
