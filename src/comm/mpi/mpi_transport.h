#pragma once

#include <memory>

#include "comm/transport.h"

namespace linnet {

/// Initialises MPI; its ranks. A thread of the transport makes all calls of MPI. `by_silence`: ranks of the
/// same machine too are found dead by their silence alone, as tests want it. Throws UsageError on all ranks,
/// without MPI from then on, where it has too few tags.
std::shared_ptr<Transport> mpi_transport(bool by_silence = false);

}  // namespace linnet
