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

/// A task of the forward pass: heads [first_head, last_head) of a batch entry, value columns [first_column,
/// last_column).
struct LinearBlock {
  std::int64_t batch, first_head, last_head, first_column, last_column;
};

/// Computes the block's part of out; the block with column 0 also writes the normaliser and, where `final` is
/// given, each head's final z to `final_z` [B, H, F]. The final S goes to `final`, which may be the initial
/// state.
void linear_forward_block(const LinearCall& call, const AttentionOutputs& outputs, const LinearBlock& block,
                          LinearState* final, float* final_z);

/// What both sides of the backward pass read.
struct LinearGradientCall {
  LinearCall forward;
  View<const float> grad_out, out, normaliser;
};

/// Heads [first_head, last_head) of a batch entry.
struct LinearHeads {
  std::int64_t batch, first_head, last_head;
};

/// The gradient of the heads' queries, sweeping forwards; and of their keys and values, sweeping from the
/// end.
void linear_query_gradient(const LinearGradientCall& call, View<float> grad_query, const LinearHeads& heads);
void linear_key_gradient(const LinearGradientCall& call, View<float> grad_key, View<float> grad_value,
                         const LinearHeads& heads);

/// One token of one head, in one pass over its state: z += φk, S += φk vᵀ, out = Sᵀ φq / (zᵀ φq + ε).
void linear_step_head(float* out, float* sums, float* z, const float* query_features,
                      const float* key_features, const float* value, std::int64_t features,
                      std::int64_t value_dim, bool normalise, float epsilon);

}  // namespace linnet
