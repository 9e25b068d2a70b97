#pragma once

#include <memory>

#include "linnet/dataset.h"

namespace linnet::python {

/// A data set as Python holds it. Immutable, so that it needs no lock.
struct DatasetObject {
  std::shared_ptr<const Dataset> dataset;
};

}  // namespace linnet::python
