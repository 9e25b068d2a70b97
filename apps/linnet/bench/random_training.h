#pragma once

#include <cstdint>
#include <vector>

#include "linnet/context.h"
#include "linnet/run_config.h"
#include "model/segments.h"
#include "training/optimiser.h"

namespace linnet {

/// Updates of one pass each of a new model on random tokens, which cost what real ones cost. An update is
/// `pass` and `update`, in this order.
class RandomTraining {
 public:
  /// Throws UsageError of the `operation` for a model whose steps are not a token each.
  RandomTraining(const char* operation, Context& context, const RunConfig& config);

  /// Of an update.
  std::int64_t tokens() const { return std::ssize(ids_); }

  /// Loss and gradients.
  void pass();
  /// Norm, optimiser, packing.
  void update();

 private:
  Context& context_;
  ModelConfig model_;
  TrainingOptions options_;
  Network network_;
  Tensor values_, gradients_;
  Optimiser optimiser_;
  SegmentedTransformer transformer_;
  std::vector<std::int32_t> ids_, targets_;
  std::int64_t step_ = 0;
};

}  // namespace linnet
