#pragma once

#include <cstdint>
#include <memory>

#include "linnet/attention.h"

namespace linnet {

/// What an attention gives for one call.
struct Attended {
  Tensor out;                                   ///< [batch, length, heads, dim]
  Tensor normaliser;                            ///< [batch, length, heads], or none in the recurrent form
  std::unique_ptr<State> final;                 ///< or null where it is not wanted
  std::int64_t non_positive = 0, vanished = 0;  ///< denominators, in the parallel form
};

/// All tokens at once. Throws Error where the inputs do not fit.
Attended attend_parallel(Context& context, const Attention& attention, const AttentionInputs& inputs,
                         bool final_state);

/// One token after another through `step`: the same numbers up to rounding, for a causal mask alone. Throws
/// Error where the inputs do not fit, and for bf16.
Attended attend_recurrent(Context& context, const Attention& attention, const AttentionInputs& inputs);

}  // namespace linnet
