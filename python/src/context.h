#pragma once

#include <mutex>

#include "linnet/context.h"

namespace linnet::python {

/// A context that any Python thread may use: its calls take turns.
struct SharedContext {
  explicit SharedContext(int threads) : context(threads) {}

  Context context;
  std::mutex mutex;
};

}  // namespace linnet::python
