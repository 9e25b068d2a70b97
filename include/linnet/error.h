#pragma once

#include <stdexcept>
#include <string>

namespace linnet {

/// The base of all exceptions of Linnet, for faults of a caller, a file or the machine. `what()` is one
/// sentence, `[operation] expected ..., got ...`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An invalid option, key or argument. The program then ends with status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace linnet
