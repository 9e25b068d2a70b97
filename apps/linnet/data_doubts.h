#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linnet/dataset.h"

namespace linnet {

/// How many sequences have each of the labels.
std::vector<std::int64_t> count_labels(const Dataset& data);

/// Sentences about data that are seldom meant as `options` have them read: times that are learned as a
/// column, nucleotides that are read as residues, a tokenizer that loses line ends, labels of lines that are
/// not held out. `validation` may be null.
std::vector<std::string> doubts_of(const DataOptions& options, const Dataset& training,
                                   const Dataset* validation);

}  // namespace linnet
