#pragma once

#include <cstdint>
#include <memory>

#include "linnet/attention.h"
#include "linnet/reference.h"

namespace linnet {

/// Softmax over the patterns of Child et al. 2019, section 4.3, with stride s; query i sees the keys j ≤ i
/// with
///   strided: i − j < s, or s divides i − j;
///   fixed: ⌊j/s⌋ = ⌊i/s⌋, or j mod s ≥ s − c.
/// Exact, causal, O(N √N): the near keys are a window or a segment of softmax attention, the far ones dense
/// softmax attention too, among the tokens of each residue of s or on the gathered summaries; both meet by
/// their log-sum-exp, which `normaliser` receives. Masks: causal, with key lengths.
///
/// One batch entry after another, in f32 copies of its tokens: 6 (E + M) floats a token and head at most, for
/// one entry. States (`StridedState`) hold every token of the strided pattern, since a later query sees each,
/// of which a step reads s + N/s; of the fixed one the current block and c tokens of each earlier block. They
/// need a stride. Throws Error when stride or summary cannot be.
std::unique_ptr<Attention> make_strided_attention(const AttentionOptions& options);

/// Softmax's reference under the boolean mask of the same pattern.
void strided_reference_forward(const AttentionOptions& options, View<double> out,
                               const ReferenceInputs& inputs);
void strided_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                View<const double> grad_out, const ReferenceInputs& inputs);

}  // namespace linnet
