#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "linnet/model.h"

namespace linnet {

class Dataset;

/// Examples laid out for a model: inputs are the first token (start or class) and then all tokens but the
/// last.
struct Examples {
  std::vector<std::int32_t> inputs;   ///< [count · length]
  std::vector<std::int32_t> targets;  ///< [count · length], −1 where nothing is counted
  std::int64_t counted = 0;           ///< targets that are not negative

  /// Reads `count` examples, the i-th being index(i) of the dataset; read on all threads.
  void read(const Dataset& dataset, const ModelConfig& config, std::int64_t count,
            const std::function<std::int64_t(std::int64_t)>& index);
};

/// Throws UsageError where the dataset's examples do not fit the model: length, vocabulary, classes.
void check_fit(const ModelConfig& config, const Dataset& dataset);

}  // namespace linnet
