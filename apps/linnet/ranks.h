#pragma once

#include <functional>
#include <string>
#include <vector>

#include "generation/stream_file.h"
#include "linnet/communicator.h"

namespace linnet {

/// Runs the program on the ranks that a launcher such as mpirun started, or on this process alone. Standard
/// output is that of rank 0. Returns the status to exit with, after an error of any rank has been printed
/// once as a sentence.
int run_on_ranks(const std::function<void(Communicator& ranks)>& program);

/// Refuses several ranks for a command that does not divide its work among them.
void check_ranks(const Communicator& ranks, const std::string& command);

/// Does on rank 0 alone what concerns the files that it writes. Where it throws, all ranks throw the same
/// error.
void on_first_rank(Communicator& ranks, const std::function<void()>& work);

/// The bytes of a file, as every rank finds it; those of standard input, "-", are read by rank 0 for all.
std::string read_input(Communicator& ranks, const std::string& file);

/// On rank 0 the streams of all ranks, in the order of ranks; nothing on other ranks.
std::vector<SavedStream> gather_streams(Communicator& ranks, std::vector<SavedStream> mine);

}  // namespace linnet
