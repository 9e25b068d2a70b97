#pragma once

#include <memory>

#include "linnet/model.h"

namespace linnet::python {

/// A model as Python holds it. Immutable, so that it needs no lock.
struct ModelObject {
  std::shared_ptr<const Model> model;
};

}  // namespace linnet::python
