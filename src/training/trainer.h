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
#include "training/examples.h"
#include "training/gradient_sum.h"
#include "training/optimiser.h"
#include "training/stretches.h"

namespace linnet {

/// The parameters and all that changes with them. Ranks have a copy each, which stay equal bit for bit.
class LINNET_HIDDEN Trainer::Impl {
 public:
  /// `ranks` share the passes of an update; null for this process alone. With options.sequence_ranks = Q, Q
  /// neighbours compute a pass together, each a stretch of its sequences.
  Impl(Context& context, const ModelConfig& config, const TrainingOptions& options, const Model* initial,
       std::shared_ptr<const FeatureMap> feature_map, Communicator* ranks = nullptr);

  /// An update. With several ranks all call it, each with the examples of its `own_passes`, options.batch for
  /// each pass.
  StepReport step(const Batch& batch);

  StepReport step(const Dataset& dataset);
  StepReport step(const Dataset& dataset, std::span<const std::int64_t> indices);

  /// An update with the next examples in the order of a run, those of the passes of this rank, of a dataset
  /// that `check_training_data` has looked at.
  StepReport step_in_order(const Dataset& dataset);

  double learning_rate() const;
  void set_learning_rate(std::optional<double> rate);
  void set_columns(const ColumnStatistics& columns, const ColumnStatistics& targets);
  void set_assets(ModelAssets assets);
  /// The scale of real numbers in the training data, unless one was given.
  void set_scale_of(const Dataset& dataset);
  void set_assets_of(const Dataset& dataset);
  void set_data(const Dataset& dataset);
  void save(const std::filesystem::path& folder);
  /// Another rank has written the checkpoint that is now the last good one.
  void saved(const std::filesystem::path& folder);
  void restore(const std::filesystem::path& folder);

  /// Writes the model alone into a folder, as `Model::save`.
  void write_model(const std::filesystem::path& folder) const;

  std::int64_t steps() const { return progress_.step; }
  /// What `train` counts beside the updates is written with the next checkpoint.
  TrainingProgress& progress() { return progress_; }
  const TrainingProgress& progress() const { return progress_; }
  std::shared_ptr<const Model> model() const;
  const Network& network() const { return network_; }
  std::span<const float> values() const { return values_.span<float>(); }
  const Optimiser& optimiser() const { return optimiser_; }
  /// Whether it began from a model.
  bool adapted() const { return adapted_; }

 private:
  /// Where the scale of real numbers is from: `given` by the caller or a checkpoint.
  enum class Scale { none, of_data, of_initial, given };

  /// Of the examples of an update, on all ranks.
  struct Sizes {
    std::int64_t examples = 0, steps = 0, counted = 0;
  };

  /// The ranks that compute a pass together, and those that compute the same stretch of other passes.
  struct Groups {
    std::unique_ptr<Communicator> stretches, passes;
    RankStretches exchange;
  };

  /// Divides the ranks when it is called first, which all of them do at the same time.
  Groups& groups();
  /// Passes of an update that this rank computes, or a stretch of each of them.
  PassRange own_passes();
  std::int64_t own_length() const { return config_.length / options_.sequence_ranks; }
  void write_columns(const ColumnStatistics& columns, const ColumnStatistics& targets);
  /// Before the first update with a dataset of which nothing else was taken.
  void take_missing_scale(const Dataset& dataset);
  /// The `count` examples index(i), which are the examples `first` + i of the run.
  StepReport step_of(const Dataset& dataset, std::int64_t count, const Examples::Index& index,
                     std::int64_t first);
  Sizes sizes_of_all(const Batch& batch);
  /// Sum of the losses of all ranks in nats; `gradients_` is assigned.
  double accumulate_gradients(const Batch& batch, std::int64_t counted);
  double compute_pass(const Batch& batch, std::int64_t pass, std::int64_t counted, std::span<float> gradients,
                      const GradientsComplete& complete);
  GradientSum& sum_of(std::int64_t passes);
  SegmentedTransformer& transformer_for(std::int64_t examples);
  void pack() { network_.pack(context_, values_.span<float>(), true); }

  [[noreturn]] void fail_not_finite(const char* what, const std::string& where) const;
  std::string parameter_not_finite() const;

  Context& context_;
  std::unique_ptr<Communicator> alone_;  ///< where no ranks were given
  Communicator& ranks_;
  ModelConfig config_;
  TrainingOptions options_;
  std::vector<float> head_weights_;
  ModelAssets assets_;
  std::shared_ptr<const FeatureMap> feature_map_;  ///< of the user's own, or null
  Network network_;
  Tensor values_, gradients_;
  Optimiser optimiser_;
  std::optional<double> rate_;  ///< in place of the schedule's
  bool adapted_;
  Scale scale_ = Scale::none;
  std::optional<SegmentedTransformer> transformer_;  ///< for passes of up to `reserved_` examples
  std::int64_t reserved_ = 0;
  std::optional<Groups> groups_;
  PassPiece stretch_;
  Examples examples_;
  TrainingProgress progress_;
  std::filesystem::path checkpoint_;  ///< saved or restored last; empty if none was
  Sizes sizes_;
  std::vector<double> nats_;        ///< of each pass of an update
  std::optional<GradientSum> sum_;  ///< for so many passes; after the memory that is exchanged
};

}  // namespace linnet
