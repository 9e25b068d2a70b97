#pragma once

#include <algorithm>

#include "base/fail.h"
#include "linnet/attention.h"
#include "linnet/reference.h"

namespace linnet {

/// Linformer (Wang et al. 2020, equation 7): V' = softmax(scale · Q (E K)ᵀ) (F V). The projections E and F
/// come with each call; k of them stand for all keys, so that time and memory are linear in the length.
/// `normaliser` receives the log-sum-exp of every query's k scores.
///
/// Inputs shorter than the projections use their leading columns, padded keys (key lengths) are left out
/// before anything is projected, longer inputs are refused. So is every mask but the full one, and every
/// state: a compressed key is a sum over all positions, in which no mask can tell them apart any more.
///
/// Memory beyond inputs and outputs: O(k) a head, two numbers a query; with bf16 copies of all in f32.
std::unique_ptr<Attention> make_linformer_attention(const AttentionOptions& options);

/// The same in double precision, with the gradients written out. Those of the projections may be left out.
void linformer_reference_forward(const AttentionOptions& options, View<double> out,
                                 const ReferenceInputs& inputs);
void linformer_reference_backward(const AttentionOptions& options, const ReferenceGradients& gradients,
                                  View<const double> grad_out, const ReferenceInputs& inputs);

/// Throws Error unless `mask` is full, with key lengths or without, and both projections fit `keys` keys of
/// `heads` heads: [heads or 1, k, N] with 1 ≤ k ≤ N and N ≥ keys.
template <class T>
void check_linformer(const char* operation, const Mask& mask, View<const T> key_projection,
                     View<const T> value_projection, std::int64_t heads, std::int64_t keys);

/// Throws Error unless the gradients of the projections, where they are wanted, have the projections' shapes.
/// For AttentionGradients and ReferenceGradients.
template <class Gradients, class Inputs>
void check_projection_gradients(const char* operation, const Gradients& gradients, const Inputs& inputs) {
  const auto check = [&](const char* name, const auto& gradient, const auto& projection) {
    if (gradient.rank() == 0) return;
    if (!std::ranges::equal(gradient.shape(), projection.shape()))
      fail(operation, "expected the gradient of {} {}, got {}", name, to_string(projection.shape()),
           to_string(gradient.shape()));
    expect_memory(operation, fmt::format("the gradient of {}", name).c_str(), gradient);
  };
  check("key_projection", gradients.key_projection, inputs.key_projection);
  check("value_projection", gradients.value_projection, inputs.value_projection);
}

}  // namespace linnet
