#pragma once

#include <cstdint>

namespace linnet {

/// Dropout of one training pass: the seed changes with every pass, the layer picks its own numbers from it.
struct Dropout {
  float rate = 0;
  std::uint64_t seed = 0;
};

}  // namespace linnet
