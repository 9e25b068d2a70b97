#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "linnet/training.h"
#include "training/optimiser.h"

namespace linnet {

/// The checkpoints of a run, `folder`/checkpoints/STEP: config.json and model.safetensors (a model's folder),
/// optimiser.safetensors (the moments), state.json (step, examples seen, options). A checkpoint appears whole
/// or not at all.
class Checkpoints {
 public:
  explicit Checkpoints(const std::filesystem::path& run) : folder_(run / "checkpoints") {}

  /// Step of the newest checkpoint.
  std::optional<std::int64_t> newest() const;

  std::filesystem::path path(std::int64_t step) const;

  /// Writes one, then deletes all but the newest `keep`.
  void save(std::int64_t step, const ModelConfig& config, const TrainingOptions& options,
            const ParameterTable& table, std::span<const float> values, Optimiser& optimiser) const;

  /// Reads one into parameters and moments. Throws Error where it is damaged, belongs to another
  /// configuration or to training options that would have led elsewhere, naming the first key that differs.
  void load(std::int64_t step, const ModelConfig& config, const TrainingOptions& options,
            const ParameterTable& table, std::span<float> values, Optimiser& optimiser) const;

 private:
  std::vector<std::int64_t> steps() const;

  std::filesystem::path folder_;
};

}  // namespace linnet
