#pragma once

#include <memory>

#include "linnet/dataset.h"

namespace linnet {

/// The sequences of a dataset of tokens, several whole ones in each example: an example takes sequences in
/// the order of decreasing length, each into the fullest example that has space for it (best fit decreasing;
/// Johnson, "Near-optimal bin packing algorithms", 1973). Which sequences share an example never changes.
/// Throws UsageError for data with real numbers.
std::unique_ptr<Dataset> packed_sequences(std::unique_ptr<Dataset> singles);

}  // namespace linnet
