#pragma once

#include "io/options.h"
#include "linnet/run_config.h"

namespace linnet {

/// All keys of the configuration, bound to it.
Options options_of(RunConfig& config);

/// Bytes that a rank needs at the very least for a configuration.
struct MemoryNeeds {
  double parameters = 0;  ///< values, packed weights; in training also gradients, their sums and moments
  double tokens = 0;      ///< activations, inputs and targets of training
  double total() const { return parameters + tokens; }
};
/// Of the rank of `ranks` that needs most: they share the passes of an update, and training.sequence_ranks of
/// them each sequence.
MemoryNeeds memory_needs(const RunConfig& config, bool for_training, std::int64_t ranks = 1);

/// Whether examples of that kind are pictures.
bool are_pictures(const std::string& kind);

/// Whether data of that kind are files, and not a folder or generated.
bool takes_files(const std::string& kind);

/// Whether the folder of data of that kind has files for testing.
bool has_test_files(const std::string& kind);

/// The kind of data that `set_source` takes a source for. Throws as it does.
std::string kind_of_source(const std::string& source);

}  // namespace linnet
