#pragma once

#include "linnet/attention.h"

namespace linnet {

/// Linear attention (Katharopoulos et al. 2020): out = φ(q)ᵀ Σ φ(k) vᵀ / (φ(q)ᵀ Σ φ(k) + ε), the sums over
/// the keys that the query sees. `normaliser` holds the denominators, 1 where nothing is divided. Throws
/// Error for options that cannot be.
std::unique_ptr<Attention> make_linear_attention(const AttentionOptions& options);

/// The same in double precision, key by key.
void linear_reference_forward(const AttentionOptions& options, View<double> out,
                              const ReferenceInputs& inputs);
void linear_reference_backward(const AttentionOptions& options, View<double> grad_query,
                               View<double> grad_key, View<double> grad_value, View<const double> grad_out,
                               const ReferenceInputs& inputs, View<double> grad_decay);

}  // namespace linnet
