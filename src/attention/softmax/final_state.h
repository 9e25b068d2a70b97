#pragma once

#include <cstdint>

#include "attention/arguments.h"
#include "linnet/attention.h"

namespace linnet::softmax {

/// The tokens that a token behind batch entry b may see: its last segment's, behind those that the initial
/// state holds, `held` of them, where that segment is the first.
struct LastTokens {
  LastTokens(const AttentionInputs& inputs, std::int64_t b, std::int64_t held)
      : keys(kept_keys(inputs.mask, b, inputs.key.extent(1))), carried(keys.begin == 0 ? held : 0) {}

  std::int64_t count() const { return carried + keys.end - keys.begin; }

  Mask::Interval keys;   ///< of the call
  std::int64_t carried;  ///< of the initial state, before them
};

/// Hands them to the final state's slot. Both states have `reset`, `copy` and `append`.
template <class S>
void leave_state(S& final, const S* initial, const AttentionInputs& inputs, std::int64_t b) {
  const Mask::Interval kept = kept_keys(inputs.mask, b, inputs.key.extent(1));
  if (initial != nullptr && kept.begin == 0)
    final.copy(b, *initial, b);
  else
    final.reset(b);
  const auto tokens = [&](ConstFloatView x) -> ConstFloatView {
    const auto part = [&]<class T>(View<const T> view) -> ConstFloatView {
      return View<const T>(view.at(b, kept.begin), {kept.end - kept.begin, view.extent(2), view.extent(3)},
                           {view.stride(1), view.stride(2), 1});
    };
    return x.dtype() == DType::bf16 ? part(x.as<const bf16>()) : part(x.as<const float>());
  };
  final.append(b, tokens(inputs.key), tokens(inputs.value));
}

}  // namespace linnet::softmax
