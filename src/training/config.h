#pragma once

#include "io/options.h"
#include "linnet/training.h"

namespace linnet {

/// Adds the keys training.*, bound to `options`.
void add_options(Options& table, TrainingOptions& options);

}  // namespace linnet
