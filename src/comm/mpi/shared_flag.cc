#include "comm/mpi/shared_flag.h"

#include <mpi.h>

#include <atomic>
#include <new>

namespace linnet {

using Flag = std::atomic<int>;
static_assert(Flag::is_always_lock_free);

class SharedFlag::Impl {
 public:
  /// Takes the place of the rank's own flag where the machine's ranks can share memory.
  void share() {
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_set_errhandler(machine, MPI_ERRORS_RETURN);
    int rank = 0;
    MPI_Comm_rank(machine, &rank);
    void* memory = nullptr;
    if (MPI_Win_allocate_shared(rank == 0 ? sizeof(Flag) : 0, sizeof(Flag), MPI_INFO_NULL, machine, &memory,
                                &window) == MPI_SUCCESS) {
      MPI_Aint bytes = 0;
      int unit = 0;
      MPI_Win_shared_query(window, 0, &bytes, &unit, &memory);
      flag = rank == 0 ? new (memory) Flag(0) : static_cast<Flag*>(memory);
      MPI_Barrier(machine);
    } else {
      window = MPI_WIN_NULL;
    }
    MPI_Comm_free(&machine);
  }

  Flag own = 0;
  Flag* flag = &own;
  MPI_Win window = MPI_WIN_NULL;
};

SharedFlag::SharedFlag(bool apart) : impl_(std::make_unique<Impl>()) {
  if (!apart) impl_->share();
}

SharedFlag::~SharedFlag() = default;

bool SharedFlag::raise() { return impl_->flag->exchange(1) == 0; }

void SharedFlag::close() {
  impl_->flag = &impl_->own;
  if (impl_->window != MPI_WIN_NULL) MPI_Win_free(&impl_->window);
}

}  // namespace linnet
