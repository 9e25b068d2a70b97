#pragma once

#include <memory>

#include "linnet/attention.h"

namespace linnet {

/// Exact softmax attention, V'_i = Σ_j softmax_j(scale · q_i·k_j) v_j (Vaswani et al. 2017, equation 1),
/// computed tile by tile with a running maximum and sum (Milakov and Gimelshein 2018): never an N×N buffer.
/// `normaliser` receives the log-sum-exp of every query's scores, −∞ for a query that sees no key. The state
/// is the key-value cache (cache.h). Throws Error when the scale is negative or not finite.
std::unique_ptr<Attention> make_softmax_attention(const AttentionOptions& options);

/// The same in double precision, a row of scores at a time, with the gradients written out.
void softmax_reference_forward(const AttentionOptions& options, View<double> out,
                               const ReferenceInputs& inputs);
void softmax_reference_backward(const AttentionOptions& options, View<double> grad_query,
                                View<double> grad_key, View<double> grad_value, View<const double> grad_out,
                                const ReferenceInputs& inputs);

}  // namespace linnet
