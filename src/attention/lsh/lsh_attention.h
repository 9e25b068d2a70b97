#pragma once

#include "linnet/attention.h"
#include "linnet/reference.h"

namespace linnet {

/// Reformer's attention (Kitaev et al. 2020, section 2): queries and keys are the same vectors, and a query
/// attends to those that a hash throws into its own bucket. `key` must be the same view as `query`; a key is
/// its query brought to unit length (a vector of length 0 stays as it is). In every round
///
/// - random rotations hash each token to one of `buckets` buckets (hash.h);
/// - tokens are sorted by (bucket, position) and cut into chunks;
/// - token i sees the tokens of its own bucket in its own chunk and the one before, under a causal mask those
///   before i only, and never itself.
///
/// A key counts once, in the first round in which the token sees it: Kitaev et al. subtract log N_ij from the
/// score of a key that is seen in N_ij rounds, which gives the same sums. The rounds' softmaxes are combined
/// as their log-sum-exps say: V'_i = Σ_r exp(z_ir − z_i) V'_ir with z_i = log Σ_r exp(z_ir). A token that
/// sees nothing in any round attends to itself. `normaliser` receives z_i.
///
/// Masks: full and causal, with key lengths. Padding is left out as query too: it gives zeros, has zero
/// gradients, and may hold anything. There is no recurrent form: a token's chunk depends on all tokens.
///
/// O(rounds · N (chunk (E + M + rounds) + E log N)) time with the default buckets, O(rounds · N) memory.
/// Pairs are multiplied in every round in which they meet. The gradient of query is the sum of both roles;
/// that of key is assigned zeros. Throws UsageError for options that cannot be.
std::unique_ptr<Attention> make_lsh_attention(const AttentionOptions& options);

/// The same in double precision, with the chunks found by counting; the hash is the one of f32 inputs, so
/// that both take the same buckets.
void lsh_reference_forward(const AttentionOptions& options, View<double> out, const ReferenceInputs& inputs);
void lsh_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                            View<const double> grad_out, const ReferenceInputs& inputs);

/// Throws Error for any mask but full and causal ones, with key lengths or without.
void check_lsh_mask(const char* operation, const Mask& mask);

}  // namespace linnet
