#pragma once

#include "linnet/communicator.h"

namespace linnet {

/// Threads for each rank: one for each processor that it may run on, divided by the ranks of its machine that
/// may run on the same ones. Called by all ranks.
int threads_of_rank(Communicator& ranks);

}  // namespace linnet
