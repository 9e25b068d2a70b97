#pragma once

#include <stdexcept>
#include <string>

namespace linnet {

/// Everything Linnet throws for what a caller, a file or the machine did wrong. `what()` is one sentence,
/// `[operation] expected ..., got ...`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An option, key or argument that cannot be what it is; the program ends with status 2 for it.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace linnet
