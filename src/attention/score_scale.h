#pragma once

#include <cmath>
#include <cstdint>

namespace linnet {

/// The factor of q·k: `scale` (AttentionOptions), or 1/√E where it is 0.
inline double score_scale(float scale, std::int64_t head_dim) {
  return scale != 0 ? static_cast<double>(scale) : 1 / std::sqrt(static_cast<double>(head_dim));
}

}  // namespace linnet
