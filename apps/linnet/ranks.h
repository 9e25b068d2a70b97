#pragma once

#include <functional>
#include <string>
#include <vector>

#include "command_line.h"
#include "generation/stream_file.h"
#include "linnet/communicator.h"
#include "linnet/model.h"
#include "training/rank_agreement.h"

namespace linnet {

/// Runs the program on the ranks that a launcher such as mpirun started, or on this process alone. Standard
/// output is that of rank 0. Returns the status to exit with, after an error of any rank has been printed
/// once as a sentence.
int run_on_ranks(const std::function<void(Communicator& ranks)>& program);

/// Refuses several ranks for a command that does not divide its work among them, and ranks of which one runs
/// another command than rank 0, another version or another instruction set.
void check_ranks(Communicator& ranks, const std::string& command);

/// What divides a command's work among ranks wrongly where it differs between them.
struct RankWork {
  const Model& model;
  const std::vector<Option>& options;  ///< of the command
  std::vector<std::string> apart;  ///< names of those that may differ: files, and what rank 0 alone looks at
  std::vector<Shared> inputs;      ///< what the files hold
};

/// Throws UsageError, with the same sentence on all ranks, where the work of one is not that of rank 0.
void require_same_work(Communicator& ranks, const RankWork& work);

/// Does on rank 0 alone what concerns the files that it writes. Where it throws, all ranks throw the same
/// error.
void on_first_rank(Communicator& ranks, const std::function<void()>& work);

/// The bytes of a file, as every rank finds it; those of standard input, "-", are read by rank 0 for all.
std::string read_input(Communicator& ranks, const std::string& file);

/// On rank 0 the streams of all ranks, in the order of ranks; nothing on other ranks.
std::vector<SavedStream> gather_streams(Communicator& ranks, std::vector<SavedStream> mine);

}  // namespace linnet
