#pragma once

#include "attention/linear/linear_state.h"

namespace linnet {

/// One call of the parallel form, its arguments checked.
struct LinearCall {
  const FeatureMap& map;
  std::int64_t features;  ///< F
  bool normalise;
  float epsilon;
  int layer;
  AttentionSizes sizes;
  const AttentionInputs& inputs;
  const LinearState* initial;

  bool causal() const { return inputs.mask.kind() == Mask::Kind::causal; }
  std::int64_t visible_keys(std::int64_t b) const { return inputs.mask.visible_keys(b, sizes.keys); }
  /// Whether any key is seen, be it one of this call or one of the initial state.
  bool sees_keys(std::int64_t b) const {
    return visible_keys(b) > 0 || (initial != nullptr && initial->position(b) > 0);
  }
  /// Position of the first row: keys go with the queries under a causal mask, and count from 0 otherwise.
  std::int64_t position(bool query) const { return query || causal() ? inputs.position : 0; }
};

/// A value column block [first, last) of one head of one batch entry.
struct LinearBlock {
  std::int64_t batch, head, first_column, last_column;
};

/// Computes the block's columns of out; the block with column 0 also writes the normaliser and, to `final_z`
/// [F], the final z. `final_sums` [F, M] receives the final S; it and the initial state's may be the same
/// memory.
void linear_forward_block(const LinearCall& call, const AttentionOutputs& outputs, const LinearBlock& block,
                          float* final_sums, float* final_z);

/// What both sides of the backward pass read.
struct LinearGradientCall {
  LinearCall forward;
  View<const float> grad_out, out, normaliser;
};

/// The gradient of a head's queries, sweeping forwards; and of its keys and values, sweeping from the end.
void linear_query_gradient(const LinearGradientCall& call, View<float> grad_query, std::int64_t b,
                           std::int64_t h);
void linear_key_gradient(const LinearGradientCall& call, View<float> grad_key, View<float> grad_value,
                         std::int64_t b, std::int64_t h);

/// One token of one head, in one pass over its state: z += φk, S += φk vᵀ, out = Sᵀ φq / (zᵀ φq + ε).
void linear_step_head(float* out, float* sums, float* z, const float* query_features,
                      const float* key_features, const float* value, std::int64_t features,
                      std::int64_t value_dim, bool normalise, float epsilon);

}  // namespace linnet
