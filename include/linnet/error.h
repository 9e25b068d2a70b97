#pragma once

#include <stdexcept>
#include <string>

#include "linnet/export.h"

namespace linnet {

/// The base of all exceptions of Linnet, for faults of a caller, a file or the machine. `what()` is one
/// sentence, `[operation] expected ..., got ...`, or `[operation] cannot ...: ...` for what the system
/// refused.
class LINNET_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An invalid option, key or argument. The program then ends with status 2.
class LINNET_API UsageError : public Error {
 public:
  using Error::Error;
};

/// Less free memory than what is asked for needs, found before it is taken. Where it runs out while it is
/// taken, std::bad_alloc is thrown.
class LINNET_API OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

}  // namespace linnet
