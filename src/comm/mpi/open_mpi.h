#pragma once

#include <functional>

namespace linnet {

/// Both after MPI has been initialised, and without effect where MPI is not Open MPI 4.

/// Makes Open MPI print its help messages in this process. It gives them to the launcher otherwise and waits
/// for the answer, without end where the launcher ends the run at this moment: as when a rank has died, which
/// is one of these messages.
void print_help_messages_here();

/// Makes Open MPI call `last_words`, which does not return, on the thread of this call, where it would end
/// the process without a word: when a connection over TCP breaks for which it holds messages back. That is
/// within a call of MPI, which can take and send nothing more but what goes out at once.
void on_abort_of_mpi(std::function<void()> last_words);

}  // namespace linnet
