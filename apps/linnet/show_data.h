#pragma once

#include "command_line.h"

namespace linnet {

/// Adds `show` to `linnet data`: what a configuration or a run reads from its data.
void add_show(Command& data);

}  // namespace linnet
