#pragma once

#include <string>
#include <vector>

#include "linnet/communicator.h"
#include "linnet/training.h"

namespace linnet {

/// Something that all ranks have in common, or ought to: its name in a sentence, and its value as text.
struct Shared {
  std::string name, value;
};

/// Throws UsageError, with the same sentence on all ranks, where the things of one rank are not those of rank
/// 0: the first that differs, both values and the rank. Called by all ranks.
void require_agreement(Communicator& ranks, const std::vector<Shared>& own);

/// The keys of a model and of its training, with their values.
std::vector<Shared> shared_settings(const ModelConfig& config, const TrainingOptions& options);

/// Digests of a few examples, and how many there are. `name` as in "training data".
Shared shared_data(Context& context, const std::string& name, const Dataset& dataset,
                   const ModelConfig& config);

}  // namespace linnet
