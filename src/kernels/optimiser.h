#pragma once

#include <cstdint>
#include <span>

#include "linnet/context.h"

namespace linnet::kernels {

struct AdamStep {
  float learning_rate = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.01f;  ///< decoupled: parameters shrink by learning_rate · weight_decay
  std::int64_t step = 1;       ///< of this update, from 1
  float factor = 1;            ///< of the gradients, as clipping has it
};

/// AdamW (Loshchilov and Hutter 2019, algorithm 2): moments m and v and parameters are updated in place. All
/// of one size.
void adamw_update(Context& context, std::span<float> parameters, std::span<float> m, std::span<float> v,
                  std::span<const float> gradients, const AdamStep& step);

/// RAdam (Liu et al. 2020, algorithm 2) with the same decoupled decay; plain momentum while the variance's
/// rectification is not defined (ρ_t ≤ 5). ε is added to √v before the correction of its bias, as PyTorch
/// does: the step is rate · r_t √(1 − β2^t) m̂ / (√v + ε). AdamW adds it to √v̂.
void radam_update(Context& context, std::span<float> parameters, std::span<float> m, std::span<float> v,
                  std::span<const float> gradients, const AdamStep& step);

}  // namespace linnet::kernels
