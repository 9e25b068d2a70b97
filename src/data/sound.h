#pragma once

#include <cstdint>
#include <optional>

#include "data/parts.h"
#include "io/sound.h"
#include "linnet/dataset.h"

namespace linnet {

/// The code of a sample, out of `levels` (2 … 256), by the μ-law with μ = levels − 1: ⌊μ (f + 1) / 2 + ½⌋
/// with f = sign(x) ln(1 + μ|x|) / ln(1 + μ) (ITU-T G.711; van den Oord et al., "WaveNet", 2016,
/// section 2.2). Samples outside [−1, 1] count as −1 and 1.
std::int32_t mu_law_token(float sample, std::int64_t levels);

/// The sample that a code stands for, in [−1, 1].
float mu_law_sample(std::int32_t token, std::int64_t levels);

/// The kind "sound" of open_datasets.
Datasets open_sound(const DataOptions& options, const Parts& parts);

/// Rate and channels of the sounds that `dataset` has, with 0 frames; nothing for other data.
std::optional<SoundFormat> sound_format(const Dataset& dataset);

/// How the files of such sounds were divided, the value of `data.split`; empty where they were not.
std::string sound_split(const Dataset& dataset);

}  // namespace linnet
