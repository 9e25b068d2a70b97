#include "comm/mpi/shared_flag.h"

#include <new>

namespace linnet {

static_assert(std::atomic<int>::is_always_lock_free);

SharedFlag::SharedFlag(bool apart) {
  if (apart) return;
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  MPI_Comm_set_errhandler(machine, MPI_ERRORS_RETURN);
  int rank = 0;
  MPI_Comm_rank(machine, &rank);
  constexpr MPI_Aint size = sizeof(std::atomic<int>);
  void* memory = nullptr;
  if (MPI_Win_allocate_shared(rank == 0 ? size : 0, size, MPI_INFO_NULL, machine, &memory, &window_) ==
      MPI_SUCCESS) {
    MPI_Aint found = 0;
    int unit = 0;
    MPI_Win_shared_query(window_, 0, &found, &unit, &memory);
    if (rank == 0) new (memory) std::atomic<int>(0);
    flag_ = static_cast<std::atomic<int>*>(memory);
    MPI_Barrier(machine);
  } else {
    window_ = MPI_WIN_NULL;
  }
  MPI_Comm_free(&machine);
}

bool SharedFlag::raise() { return flag_->exchange(1) == 0; }

void SharedFlag::close() {
  flag_ = &own_;
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
}

}  // namespace linnet
