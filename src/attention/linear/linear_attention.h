#pragma once

#include "linnet/attention.h"
#include "linnet/reference.h"

namespace linnet {

/// Linear attention (Katharopoulos et al. 2020): out = φ(q)ᵀ Σ φ(k) vᵀ / (φ(q)ᵀ Σ φ(k) + ε), the sums over
/// the keys that the query sees. `normaliser` holds the denominators, 1 where nothing is divided. Throws
/// Error for options that cannot be.
std::unique_ptr<Attention> make_linear_attention(const AttentionOptions& options);

/// F of that map; throws Error for a number that cannot be.
std::int64_t checked_features(const char* operation, const FeatureMap& map, std::int64_t head_dim);

/// States of the reference: S [H, F, M], then z [H, F] for each batch entry, and the logarithms M [B, H] of
/// what they are to be multiplied by where the map is log-scaled. Nothing comes before the keys where
/// `initial` is left out.
struct LinearReferenceStates {
  View<const double> initial = {}, initial_scale = {};
  std::int64_t position = 0;  ///< of the first query and key, told to the feature map
};

/// The same in double precision, key by key. `final`, `final_scale` and their gradients have the layout of
/// the initial state.
void linear_reference_forward(const AttentionOptions& options, View<double> out,
                              const ReferenceInputs& inputs, const LinearReferenceStates& states = {},
                              View<double> final = {}, View<double> final_scale = {});
void linear_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                               View<const double> grad_out, const ReferenceInputs& inputs,
                               const LinearReferenceStates& states = {}, View<double> grad_initial = {},
                               View<const double> grad_final = {});

}  // namespace linnet
