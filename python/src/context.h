#pragma once

#include "errors.h"
#include "linnet/context.h"

namespace linnet::python {

/// A context that any Python thread may use: its calls take turns.
struct SharedContext {
  explicit SharedContext(int threads) : context(threads) {}

  Context context;
  CallMutex mutex;
};

}  // namespace linnet::python
