#pragma once

namespace linnet {

/// Makes Open MPI 4 print its help messages in this process, after MPI has been initialised. It gives them to
/// the launcher otherwise and waits for the answer, without end where the launcher ends the run at this
/// moment: as when a rank has died, which is one of these messages.
void print_help_messages_here();

}  // namespace linnet
