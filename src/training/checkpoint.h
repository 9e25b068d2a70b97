#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "linnet/training.h"
#include "training/loss_average.h"
#include "training/optimiser.h"

namespace linnet {

/// How far a training has come.
struct TrainingProgress {
  std::int64_t step = 0;      ///< updates
  std::int64_t examples = 0;  ///< examples seen
  std::int64_t planned = 0;   ///< training.steps when the checkpoint was written
  LossAverage loss = {};

  // Of `train` alone.
  double seconds = 0;             ///< spent, before a resume included
  std::int64_t best_step = -1;    ///< of the best evaluation; −1 before the first
  double best_bits = 0;           ///< bits per token of that evaluation
  std::int64_t best_tokens = 0;   ///< that it counted; 0 in checkpoints of earlier versions
  std::int64_t not_improved = 0;  ///< evaluations since then
  bool evaluation_due = false;    ///< the one after the last update was left
  /// What the data are (rank_agreement.h); empty in checkpoints of earlier versions.
  std::string training_data = {}, validation_data = {};
};

/// Writes a checkpoint: config.json and model.safetensors (a model's folder), optimiser.safetensors (the
/// moments), state.json (progress, options and the digests of all four files, docs/format.md). The folder
/// appears whole or not at all. Throws Error where another one than a checkpoint stands in its place and is
/// not empty.
void write_checkpoint(const std::filesystem::path& destination, const TrainingProgress& progress,
                      const ModelConfig& config, const TrainingOptions& options, const ParameterTable& table,
                      std::span<const float> values, const Optimiser& optimiser,
                      const ModelAssets& assets = {});

/// Reads one into parameters and moments. Throws Error where it is damaged, belongs to another
/// configuration or to training options that would have led elsewhere, naming the first key that differs;
/// nothing has changed then. training.steps may differ.
TrainingProgress read_checkpoint(const std::filesystem::path& folder, const ModelConfig& config,
                                 const TrainingOptions& options, const ParameterTable& table,
                                 std::span<float> values, Optimiser& optimiser);

/// Throws Error naming the file, or the tensor in it, where a checkpoint is not whole: a file is missing,
/// cannot be read or is not the one that its digests describe. Checkpoints of versions before digests are
/// whole where their files can be read.
void check_checkpoint(const std::filesystem::path& folder);

/// Throws Error where a folder that is not empty holds no checkpoint, but perhaps a model.
void check_not_a_model(const std::filesystem::path& folder);

/// Throws Error where the folder of the best model of a run holds files that such a folder does not have, and
/// which replacing it would delete.
void check_best(const std::filesystem::path& folder);
inline constexpr const char* evaluation_file = "evaluation.json";

/// Where the checkpoints of a run are: `folder`/checkpoints/STEP.
class Checkpoints {
 public:
  explicit Checkpoints(const std::filesystem::path& run) : folder_(run / "checkpoints") {}

  /// Whether there are checkpoints, whole or not.
  bool any() const;

  /// Step of the newest checkpoint, whole or not; nothing where there are none.
  std::optional<std::int64_t> newest() const;

  /// Step of the newest checkpoint that is whole (check_checkpoint); nothing where there are none at all.
  /// `report` receives the fault of each newer one. Throws the fault of the newest where none is whole.
  std::optional<std::int64_t> newest_whole(const std::function<void(const std::string& fault)>& report);

  std::filesystem::path path(std::int64_t step) const;

  /// Says that the checkpoint of `step` was written anew: it has no fault any longer.
  void written(std::int64_t step);

  /// Deletes all but the newest `count`, among which those with a fault do not count, and what killed
  /// programs left of others. Of a link that alone is deleted, and a folder with other files than those of a
  /// checkpoint stays. `report` receives, once, why one cannot be deleted; the others are.
  void keep(std::int64_t count, const std::function<void(const std::string& fault)>& report);

 private:
  std::vector<std::int64_t> steps() const;

  std::filesystem::path folder_;
  std::set<std::int64_t> with_fault_, not_removed_;
};

}  // namespace linnet
