#pragma once

#include "linnet/context.h"

namespace linnet {

/// The context of tests for which the number of threads does not matter: two.
inline Context& any_context() {
  static Context context(2);
  return context;
}

}  // namespace linnet
