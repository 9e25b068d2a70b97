#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/hidden.h"
#include "linnet/training.h"
#include "model/segments.h"
#include "training/checkpoint.h"
#include "training/optimiser.h"

namespace linnet {

/// The parameters and all that changes with them.
class LINNET_HIDDEN Trainer::Impl {
 public:
  Impl(Context& context, const ModelConfig& config, const TrainingOptions& options, const Model* initial,
       std::shared_ptr<const FeatureMap> feature_map);

  StepReport step(const Batch& batch);
  void set_columns(const ColumnStatistics& columns, const ColumnStatistics& targets);
  void set_assets(ModelAssets assets);
  void save(const std::filesystem::path& folder);
  void restore(const std::filesystem::path& folder);

  /// Writes the model alone into a folder, as `Model::save`.
  void write_model(const std::filesystem::path& folder) const;

  std::int64_t steps() const { return progress_.step; }
  /// What `train` counts beside the updates is written with the next checkpoint.
  TrainingProgress& progress() { return progress_; }
  const TrainingProgress& progress() const { return progress_; }
  std::shared_ptr<const Model> model() const;
  const Network& network() const { return network_; }

 private:
  /// Sum of the losses in nats; `gradients_` is assigned.
  double accumulate_gradients(const Batch& batch, std::int64_t counted);
  SegmentedTransformer& transformer_for(std::int64_t examples);
  void pack() { network_.pack(context_, values_.span<float>(), true); }

  [[noreturn]] void fail_not_finite(const char* what, const std::string& where) const;
  std::string parameter_not_finite() const;

  Context& context_;
  ModelConfig config_;
  TrainingOptions options_;
  std::vector<float> head_weights_;
  ModelAssets assets_;
  std::shared_ptr<const FeatureMap> feature_map_;  ///< of the user's own, or null
  Network network_;
  Tensor values_, gradients_;
  Optimiser optimiser_;
  std::optional<SegmentedTransformer> transformer_;  ///< for passes of up to `reserved_` examples
  std::int64_t reserved_ = 0;
  TrainingProgress progress_;
  std::filesystem::path checkpoint_;  ///< saved or restored last; empty if none was
};

}  // namespace linnet
