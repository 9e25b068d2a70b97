#pragma once

#include <cstdint>

#include "attention/arguments.h"
#include "attention/softmax/held_gradient.h"
#include "base/parallel.h"
#include "linnet/attention.h"

namespace linnet::sparse {

// The sparse families are softmax attention on chosen keys. Where these are not a window of the call's own,
// they are laid together in f32, a batch entry at a time.

/// A row of token t and head h.
using RowOf = FunctionReference<const float*(std::int64_t t, std::int64_t h)>;

/// [1, held + N, H, D]: `held` tokens of a state, then those of batch entry b of x [B, N, H, D].
Tensor joined(Context& context, ConstFloatView x, std::int64_t b, std::int64_t held, RowOf row);
Tensor joined(Context& context, ConstFloatView x, std::int64_t b);

/// Batch entry b of `to` [B, N, H, D] from [1, N, H, D], rounded where that is bf16.
void assign(Context& context, FloatView to, std::int64_t b, View<const float> from);

/// [1, N, H] of batch entry b; nothing stays nothing.
template <class T>
View<T> entry_of(View<T> x, std::int64_t b) {
  return x.rank() == 0 ? x : x.slice(0, b, b + 1);
}

/// Adds token `t` of a state's gradient to row `row` of the gradients of joined keys and values.
void add_token(View<float> grad_key, View<float> grad_value, std::int64_t row,
               const softmax::HeldGradient<const float>& from, std::int64_t t);

/// The other way round: token `t` of a state's gradient from row `row`.
void copy_token(const softmax::HeldGradient<float>& to, std::int64_t t, View<const float> grad_key,
                View<const float> grad_value, std::int64_t row);

/// Token `to_token` of a state's gradient from token `t` of another one: added to it.
void add_token(const softmax::HeldGradient<float>& to, std::int64_t to_token,
               const softmax::HeldGradient<const float>& from, std::int64_t t);

/// What pattern(i, j) leaves of a mask over `keys` keys.
Mask masked_pattern(const Mask& mask, std::int64_t keys,
                    std::function<bool(std::int64_t i, std::int64_t j)> pattern);

}  // namespace linnet::sparse
