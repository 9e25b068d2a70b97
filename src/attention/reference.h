#pragma once

#include "linnet/attention.h"

namespace linnet {

/// Inputs of the references, dense: the same attention in double precision and quadratic time, as plain code
/// that tests compare with.
struct ReferenceInputs {
  View<const double> query, key, value;
  Mask mask = Mask::full();
  View<const double> decay = {};  ///< γ [H]
  View<const double> key_projection = {}, value_projection = {};
};

/// Gradients of the inputs, assigned; those of γ and of the projections are optional.
struct ReferenceGradients {
  View<double> query, key, value;
  View<double> decay = {}, key_projection = {}, value_projection = {};
};

void reference_forward(const AttentionOptions& options, View<double> out, const ReferenceInputs& inputs);
void reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                        View<const double> grad_out, const ReferenceInputs& inputs);

}  // namespace linnet
