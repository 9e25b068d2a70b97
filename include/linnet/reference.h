#pragma once

#include "linnet/attention.h"
#include "linnet/export.h"

namespace linnet {

/// Inputs of the references, dense: the same attention in double precision and quadratic time, as plain code
/// that tests compare with. query [B, L, H, E], key [B, S, H, E], value [B, S, H, M].
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

/// out [B, L, H, M] of the family that `options` names. Throws Error when shapes or mask do not fit and for
/// options that `make_attention` refuses, before anything is written.
LINNET_API void reference_forward(const AttentionOptions& options, View<double> out,
                                  const ReferenceInputs& inputs);
/// Gradients of a loss from `grad_out` [B, L, H, M]. Throws as `reference_forward` does.
LINNET_API void reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                   View<const double> grad_out, const ReferenceInputs& inputs);

}  // namespace linnet
