#pragma once

#include <memory>

#include "linnet/attention.h"
#include "linnet/reference.h"

namespace linnet {

/// Exact softmax over a window: query i sees the keys i − left … i + right of those that the mask shows.
/// Softmax attention under the intersection of both, which costs O(N (left + right)), in the parallel form;
/// in the recurrent form, where right = 0, a ring of left + 1 keys and values for each stream (ring.h).
/// `normaliser` receives the log-sum-exp of softmax. Every mask but boolean ones.
///
/// With an initial state, and under prefix and interval masks, one batch entry after another, with a copy of
/// its tokens in f32; else memory as softmax. Throws Error when a width is negative or above 2^40.
std::unique_ptr<Attention> make_local_attention(const AttentionOptions& options);

/// Softmax's reference under the boolean mask of the same pattern.
void local_reference_forward(const AttentionOptions& options, View<double> out,
                             const ReferenceInputs& inputs);
void local_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                              View<const double> grad_out, const ReferenceInputs& inputs);

}  // namespace linnet
