#pragma once

#include "commands.h"
#include "linnet/communicator.h"

namespace linnet {

/// Adds --threads to a command that ranks can share. 0 where it is not given.
void add_threads_of_rank(Command& command, int& threads);

/// Threads of this rank: as many as were asked for, or, of 0, one for each processor that it may run on,
/// divided by the ranks of its machine that may run on the same ones. Called by all ranks, whichever of them
/// were asked for a number.
int threads_of_rank(Communicator& ranks, int asked);

}  // namespace linnet
