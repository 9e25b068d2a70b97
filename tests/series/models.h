#pragma once

#include <cstdint>

#include "support/models.h"

namespace linnet {

/// Two columns together, two rows a step where `patch` is 2, with densities.
inline ModelConfig together(std::int64_t patch = 1) {
  ModelConfig config = tiny_config();
  config.vocabulary = 0;
  config.patch = patch;
  config.columns = 2 * patch;
  config.targets = patch > 1 ? 6 : 0;
  config.length = 40;
  config.positions = Positions::sinusoidal;
  config.value_head = ValueDistribution::student_t;
  return config;
}

}  // namespace linnet
