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
/// Exact, causal, O(N √N). The tiles of softmax attention take the near keys where they lie, and with them
/// the fixed pattern's summaries, gathered once; of the strided pattern they take the tokens of one remainder
/// of s after another, a head at a time, whose outputs meet those of the near keys by their maximum and sum.
/// `normaliser` receives the log-sum-exp over all keys. Masks: causal, with key lengths.
///
/// Working memory beyond a constant: 4 (E + M) N/s floats a thread and N a head and batch entry
/// (strided), 2 (E + M) c N/s a head and batch entry (fixed); bf16 is read from f32 copies, and behind a
/// state keys and values are joined with its own. States (`StridedState`) hold every token of the strided
/// pattern, since a later query sees each, of which a step reads s + N/s; of the fixed one the current block
/// and c tokens of each earlier block. They need a stride. Throws Error when stride or summary cannot be.
std::unique_ptr<Attention> make_strided_attention(const AttentionOptions& options);

/// Softmax's reference under the boolean mask of the same pattern.
void strided_reference_forward(const AttentionOptions& options, View<double> out,
                               const ReferenceInputs& inputs);
void strided_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                View<const double> grad_out, const ReferenceInputs& inputs);

}  // namespace linnet
