#pragma once

#include "linnet/dataset.h"

namespace linnet {

/// The dataset that the examples were selected from; itself for one that is no selection.
const Dataset& whole_of(const Dataset& dataset);

/// The index there of the example `index`.
std::int64_t index_in_whole(const Dataset& dataset, std::int64_t index);

/// The dataset, or the whole that it is a selection of, as one of this class; null for others.
template <class Kind>
const Kind* opened_as(const Dataset& dataset) {
  return dynamic_cast<const Kind*>(&whole_of(dataset));
}

}  // namespace linnet
