#pragma once

#include <memory>
#include <vector>

#include "linnet/communicator.h"

namespace linnet {

/// The ranks of one process: communicators for `size` threads of it. One rank is `Communicator::alone`.
std::vector<std::unique_ptr<Communicator>> local_ranks(int size);

}  // namespace linnet
