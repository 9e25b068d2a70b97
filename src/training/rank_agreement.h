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

/// How many examples a dataset has, and a digest of a few of them as the model takes them.
std::string description_of(Context& context, const Dataset& dataset, const ModelConfig& config);

/// What a rank has been asked to do.
struct RunTask {
  const ModelConfig& config;
  const TrainingOptions& options;
  const std::string& training_data;  ///< description_of the data
  const std::string& validation_data;
  bool resume = false, adapted = false;  ///< from a checkpoint, from an initial model
};

/// The same for version, instruction set, all keys of the configuration, and the data.
void require_same_task(Communicator& ranks, const RunTask& task);

/// The same for the number of updates, the parameters and the moments.
void require_same_numbers(Communicator& ranks, const Trainer::Impl& trainer);

}  // namespace linnet
