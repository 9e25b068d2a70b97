#pragma once

#include "io/options.h"
#include "linnet/model.h"

namespace linnet {

/// Adds the keys of a model's configuration, model.* , attention.* and image.*, bound to `config`.
void add_options(Options& options, ModelConfig& config);

}  // namespace linnet
