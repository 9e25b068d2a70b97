#pragma once

#include <exception>
#include <string>

namespace linnet {

/// What the program says on standard error where an exception ends it, and its exit status.
struct Complaint {
  std::string line;
  int status = 0;
};
Complaint complaint_of(const std::exception& error);

/// Prints it. Unlike fmt::print it never throws, should standard error be full or closed.
void print_complaint(const Complaint& complaint);

/// Ends the program with this status where the complaint has been printed already, or is another rank's.
struct Complained : std::exception {
  explicit Complained(int exit_status) : status(exit_status) {}
  int status;
};

}  // namespace linnet
