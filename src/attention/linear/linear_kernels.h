#pragma once

#include <cmath>
#include <limits>

#include "attention/linear/linear_state.h"
#include "base/random.h"

namespace linnet {

/// Products of log-scaled features below e^−kMostScale, next to the largest key's scale, count as 0, and a
/// denominator that small is not positive. Weights of pairs are at most e^kMostScale then: in the backward
/// pass they meet features of up to e^28 (RandomProjection::raised), gradients and sums, and f32 ends at
/// e^88.
inline constexpr double kMostScale = 55;

/// Denominators of at most this much count as 0 if they are not negative: the smallest normal number, or
/// e^−kMostScale with log-scales.
inline float least_denominator(bool scaled) {
  return scaled ? static_cast<float>(std::exp(-kMostScale)) : std::numeric_limits<float>::min();
}

/// One call of the parallel form, its arguments checked.
struct LinearCall {
  const FeatureMap& map;
  bool scaled;            ///< whether the map has log-scales
  std::int64_t features;  ///< F
  bool normalise;
  float epsilon;
  int layer;
  AttentionSizes sizes;
  const AttentionInputs& inputs;
  const LinearState* initial;
  bool state_gradients = false;  ///< backward: those of the initial or the final state take part

  std::int64_t visible_keys(std::int64_t b) const { return linnet::visible_keys(inputs.mask, b, sizes.keys); }
  /// Position of the first row: keys go with the queries where they are the same tokens, and count from 0
  /// otherwise.
  std::int64_t position(bool query) const {
    return query || queries_are_keys(inputs.mask) ? inputs.position : 0;
  }
  /// Whether an initial state comes before the first keys of batch entry b.
  bool continues(std::int64_t b) const { return initial != nullptr && initial->position(b) > 0; }
  float decay(std::int64_t h) const { return inputs.decay.rank() == 0 ? 1.0f : inputs.decay(h); }
  /// Whether sums are multiplied by γ as they go along. Where the map has log-scales these take the decay
  /// instead: with s_i + i ln γ of a query and s_j − j ln γ of a key, i and j counted from the call's first
  /// row, a pair has γ^(i − j). An initial state is a key at position −1.
  bool decays() const { return inputs.decay.rank() != 0 && !scaled; }
  double log_decay(std::int64_t h) const {
    return inputs.decay.rank() != 0 && scaled ? portable_log(inputs.decay(h)) : 0;
  }
  /// Rows that a sweep takes at once.
  std::int64_t chunk() const;
};

/// Heads [first_head, last_head) of a batch entry, and value columns [first_column, last_column): a task of
/// the forward pass. Tasks of the backward pass take all columns.
struct LinearBlock {
  std::int64_t batch, first_head, last_head, first_column, last_column;
};

/// The heads' final z, with what they rounded off, and the log-scales of their states.
struct FinalKeySums {
  float* z;       ///< [B, H, 2, F]
  double* scale;  ///< [B, H]
};

/// Computes the block's part of out on the calling thread, whose context is `own`; the block with column 0
/// also writes the normaliser, counts denominators that are not positive and writes `key_sums`, where
/// `final` is given. The final S goes to `final`, which may be the initial state. With an empty out the state
/// is computed alone.
void linear_forward_block(Context& own, const LinearCall& call, const AttentionOutputs& outputs,
                          const LinearBlock& block, LinearState* final, const FinalKeySums& key_sums);

/// What both sides of the backward pass read. `decay_sums` [2, B, H], where γ's gradient is wanted, receives
/// the shares of queries and of keys in γ dL/dγ. `grad_initial` and `grad_final`, where given, are [B, G]:
/// dS [H, F, M], then dz [H, F].
struct LinearGradientCall {
  LinearCall forward;
  ConstFloatView grad_out, out;
  View<const float> normaliser;
  double* decay_sums;
  View<float> grad_initial;
  View<const float> grad_final;

  double& decay_sum(bool of_keys, std::int64_t b, std::int64_t h) const {
    return decay_sums[((of_keys ? forward.sizes.batch : 0) + b) * forward.sizes.heads + h];
  }

  /// Where dS [F, M] and dz [F] of head h begin in a batch entry's G numbers.
  std::int64_t sums_at(std::int64_t h) const { return h * forward.features * forward.sizes.value_dim; }
  std::int64_t key_sum_at(std::int64_t h) const {
    return sums_at(forward.sizes.heads) + h * forward.features;
  }

  /// Where the log-scales take the decay, γ dL/dγ = Σ_i (i − c) φq_i·dφq_i + Σ_j (c − j) φk_j·dφk_j + (c + 1)
  /// S₀·dS₀, whatever c is: a factor of all log-scales changes no pair. With c = −1 the initial state S₀
  /// drops out, and with the last key's position, where the final state is left, the final one.
  std::int64_t decay_origin(std::int64_t b) const {
    return grad_final.rank() != 0 ? forward.visible_keys(b) - 1 : -1;
  }

  /// Whether the final state of batch entry b depends on anything in this call: it holds the keys of the last
  /// segment, and the initial state where that is the first.
  bool reaches_final(std::int64_t b) const {
    const Mask::Interval kept = kept_keys(forward.inputs.mask, b, forward.sizes.keys);
    return grad_final.rank() != 0 && (kept.begin < kept.end || kept.begin == 0);
  }
};

/// The gradient of the heads' queries, sweeping forwards; and of their keys and values, sweeping from the
/// end. With an empty `grad_key` the second one computes that of the initial state alone.
void linear_query_gradient(Context& own, const LinearGradientCall& call, FloatView grad_query,
                           const LinearBlock& heads);
void linear_key_gradient(Context& own, const LinearGradientCall& call, FloatView grad_key,
                         FloatView grad_value, const LinearBlock& heads);

/// One token of one head, in one pass over its state: z = γ z + φk, S = γ S + φk vᵀ, out = Sᵀ φq / (zᵀ φq +
/// ε), or `scale` Sᵀ φq where it is not normalised. A denominator from −least to least gives zeros, and a
/// smaller one where it `must_be_positive`. Without `key_features` there is no token to take: S and z are
/// read and stay as they are.
struct LinearStep {
  float* out;
  float *sums, *z;            ///< S [F, M], z [F]
  float *sums_rest, *z_rest;  ///< what their additions rounded off, where they are compensated
  bool compensated;
  const float *query_features, *key_features, *value;
  std::int64_t features, value_dim;
  double decay;
  bool normalise;
  float epsilon;
  float least;
  bool must_be_positive;
  float scale;
};
void linear_step_head(const LinearStep& step);

}  // namespace linnet
