#pragma once

#include <cstdint>

#include "data/parts.h"
#include "linnet/dataset.h"

namespace linnet {

/// The code of a sample, out of `levels` (2 … 256), by the μ-law with μ = levels − 1: ⌊μ (f + 1) / 2 + ½⌋
/// with f = sign(x) ln(1 + μ|x|) / ln(1 + μ) (ITU-T G.711; van den Oord et al., "WaveNet", 2016,
/// section 2.2). Samples outside [−1, 1] count as −1 and 1.
std::int32_t mu_law_token(float sample, std::int64_t levels);

/// The sample that a code stands for, in [−1, 1].
float mu_law_sample(std::int32_t token, std::int64_t levels);

/// Largest number of frames per step.
constexpr std::int64_t most_block = 4096;

/// The kind "sound" of open_datasets.
Datasets open_sound(const DataOptions& options, const Parts& parts);

}  // namespace linnet
