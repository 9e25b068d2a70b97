#pragma once

#include <span>
#include <string_view>

#include "io/options.h"
#include "linnet/training.h"

namespace linnet {

/// Adds the keys training.*, bound to `options`.
void add_options(Options& table, TrainingOptions& options);

/// Those of them that do not decide the parameters after a given update: how often `train` reports, evaluates
/// and saves, and when it stops.
std::span<const std::string_view> keys_of_the_loop();

}  // namespace linnet
