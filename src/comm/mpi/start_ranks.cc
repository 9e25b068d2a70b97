#include "comm/mpi/start_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/fail.h"
#ifdef LINNET_MPI
#include "comm/mpi/mpi_transport.h"
#endif

namespace linnet {
namespace {

std::optional<int> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return std::nullopt;
  return std::atoi(text);
}

/// Returns on rank 0 alone, which throws what all ranks have found.
void leave_to_first(const Launch& launched) {
  if (launched.rank == 0) return;
  // Launchers end all processes once one has failed: rank 0 speaks first.
  std::this_thread::sleep_for(std::chrono::seconds(5));
  std::_Exit(2);
}

}  // namespace

Launch launch() {
  // Of Open MPI, of launchers that speak PMI (MPICH, Intel MPI, Slurm), and of Slurm with PMIx.
  struct Names {
    const char *rank, *size;
  };
  constexpr Names launchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                 {"PMI_RANK", "PMI_SIZE"},
                                 {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}};
  for (const Names& names : launchers) {
    const std::optional<int> rank = number_of(names.rank), size = number_of(names.size);
    if (rank && size) return {*rank, *size};
  }
  return {};
}

std::unique_ptr<Communicator> start_ranks() {
  const Launch launched = launch();
  if (launched.size <= 1) return Communicator::alone();
#ifdef LINNET_MPI
  std::shared_ptr<Transport> transport;
  try {
    transport = mpi_transport();
  } catch (const UsageError&) {
    leave_to_first(launched);
    throw;
  }
  if (transport->size() == launched.size) return communicator_of(transport);
  leave_to_first(launched);
  fail<UsageError>("ranks",
                   "expected a launcher of the MPI that this program was built with, which has {} ranks, got "
                   "one that started {}",
                   transport->size(), launched.size);
#else
  leave_to_first(launched);
  fail<UsageError>("ranks", "expected one process, as this build has no MPI, got {}", launched.size);
#endif
}

}  // namespace linnet
