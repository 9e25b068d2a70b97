#pragma once

#include "io/options.h"
#include "linnet/run_config.h"

namespace linnet {

/// All keys of the configuration, bound to it.
Options options_of(RunConfig& config);

/// Whether examples of that kind are pictures.
bool are_pictures(const std::string& kind);

/// Whether data of that kind are files, and not a folder or generated.
bool takes_files(const std::string& kind);

}  // namespace linnet
