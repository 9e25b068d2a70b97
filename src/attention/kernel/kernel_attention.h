#pragma once

#include <memory>

#include "linnet/attention.h"
#include "linnet/reference.h"

namespace linnet {

/// Attention with any similarity, V'_i = Σ_j sim(q_i, k_j) v_j / (Σ_j sim(q_i, k_j) + ε) (Katharopoulos et
/// al. 2020, equation 3), or the plain sum with Normalise::none; exact, in quadratic time. `normaliser`
/// receives the denominators, 1 without them.
///
/// Similarities are asked for tiles of 128 queries and 128 keys, twice in a training step; tiles in which
/// nothing is seen are skipped. Memory beyond inputs and outputs: a constant for each thread; with bf16 the
/// gradients are summed up in f32 tensors and rounded once. NaN and infinities reach only the queries that
/// see them, and gradients through these; tiles that hold some and are partly masked go pair by pair.
///
/// There is no recurrent form. Throws Error for a similarity of finite rows that is below 0 or not finite,
/// naming it and the pair; out is partly written then.
std::unique_ptr<Attention> make_kernel_attention(const AttentionOptions& options);

/// The same in double precision, a row of similarities at a time.
void kernel_reference_forward(const AttentionOptions& options, View<double> out,
                              const ReferenceInputs& inputs);
void kernel_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                               View<const double> grad_out, const ReferenceInputs& inputs);

}  // namespace linnet
