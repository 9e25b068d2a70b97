#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "io/options.h"
#include "linnet/training.h"

namespace linnet {

/// The largest training.steps, and of everything else that counts updates.
inline constexpr std::int64_t most_steps = std::int64_t{1} << 40;

/// Adds the keys training.*, bound to `options`.
void add_options(Options& table, TrainingOptions& options);

/// Those of them that do not decide the parameters after a given update: how often `train` reports, evaluates
/// and saves, and when it stops.
std::span<const std::string_view> keys_of_the_loop();

}  // namespace linnet
