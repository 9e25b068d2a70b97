#pragma once

#include <memory>

#include "linnet/attention.h"
#include "linnet/reference.h"

namespace linnet {

/// Exact softmax attention, V'_i = Σ_j softmax_j(scale · q_i·k_j) v_j (Vaswani et al. 2017, equation 1),
/// computed tile by tile with a running maximum and sum (Milakov and Gimelshein 2018): never an N×N buffer.
/// `normaliser` receives the log-sum-exp of every query's scores, −∞ for a query that sees no key. The state
/// is the key-value cache (cache.h). Throws Error when the scale is negative or not finite.
///
/// Tiles of 48 queries and 96 keys in which nothing is seen are skipped, so that the time of an interval mask
/// follows the pairs that it shows. Boolean masks are asked for every other tile, once a head and pass: N²
/// time. Behind an initial state the queries of the first segment see all that it holds, later segments
/// nothing of it; the final state holds the last segment. NaN and infinities reach only the queries that see
/// them, and gradients through these.
///
/// Memory beyond inputs and outputs: two numbers a query and a constant for each thread; with bf16 the
/// gradients are summed up in f32 tensors and rounded once.
std::unique_ptr<Attention> make_softmax_attention(const AttentionOptions& options);

/// The same in double precision, a row of scores at a time, with the gradients written out.
void softmax_reference_forward(const AttentionOptions& options, View<double> out,
                               const ReferenceInputs& inputs);
void softmax_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                View<const double> grad_out, const ReferenceInputs& inputs);

}  // namespace linnet
