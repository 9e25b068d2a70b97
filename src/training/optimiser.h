#pragma once

#include <span>

#include "layers/parameters.h"
#include "linnet/training.h"

namespace linnet {

/// Learning rate of update `step` (from 1): a warm-up that rises linearly to the highest rate, then the
/// schedule.
double learning_rate(const TrainingOptions& options, std::int64_t step);

/// Moments of AdamW or RAdam and their update.
class Optimiser {
 public:
  Optimiser(const ParameterTable& table, const TrainingOptions& options);

  /// Update `step` of the parameters at the learning rate `rate`, from gradients that are multiplied by
  /// `factor` first. Rows that do not decay are left without weight decay.
  void update(Context& context, std::span<float> parameters, std::span<const float> gradients, float factor,
              double rate, std::int64_t step);

  Tensor& first_moments() { return m_; }
  Tensor& second_moments() { return v_; }
  const Tensor& first_moments() const { return m_; }
  const Tensor& second_moments() const { return v_; }

 private:
  const ParameterTable& table_;
  TrainingOptions options_;
  Tensor m_, v_;
};

}  // namespace linnet
