#pragma once

#include <memory>

#include "linnet/communicator.h"

namespace linnet {

/// Which of how many processes this is, as the environment says that the launcher has left: rank 0 of 1 where
/// none has started it.
struct Launch {
  int rank = 0, size = 1;
};
Launch launch();

/// All ranks that mpirun (srun, …) started with this one; `Communicator::alone()` in a process that no such
/// launcher started, for which MPI is not even initialised. Called once, before other threads start. Throws
/// UsageError on rank 0 where the build has no MPI, another one than the launcher, or one with too few tags;
/// other ranks then end silently with status 2.
///
/// A program that stops in order on SIGTERM installs its handler before and calls
/// `Communicator::stop_requested` there.
std::unique_ptr<Communicator> start_ranks();

}  // namespace linnet
