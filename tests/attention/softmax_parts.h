#pragma once

#include <vector>

#include "attention/softmax_cases.h"

// Cases of softmax attention in several calls, which a state connects.

namespace linnet::testing {

template <class T>
View<T> token(View<T> x, std::int64_t i) {
  return View<T>(x.at(0, i), {x.extent(0), x.extent(2), x.extent(3)}, {x.stride(0), x.stride(2), 1});
}

/// Tokens begin … end of the case, one step each, all batch entries as streams in slots 0, 1, ….
inline void step_through(Case& c, const Attention& attention, State& state, std::int64_t begin,
                         std::int64_t end) {
  std::vector<std::int64_t> slots;
  for (std::int64_t b = 0; b < c.sizes.batch; ++b) slots.push_back(b);
  const AttentionInputs in = c.inputs();
  for (std::int64_t i = begin; i < end; ++i)
    attention.step(any_context(), token(c.outputs().out.as<float>(), i), token(in.query.as<const float>(), i),
                   token(in.key.as<const float>(), i), token(in.value.as<const float>(), i), state, slots);
}

/// The inputs and outputs of tokens begin … end.
struct Part {
  AttentionInputs in;
  AttentionOutputs out;
  Part(Case& c, std::int64_t begin, std::int64_t end, State* initial, State* final)
      : in(c.inputs()), out(c.outputs()) {
    in.query = in.query.slice(1, begin, end);
    in.key = in.key.slice(1, begin, end);
    in.value = in.value.slice(1, begin, end);
    in.initial = initial;
    in.position = begin;
    out.out = out.out.slice(1, begin, end);
    out.normaliser = out.normaliser.slice(1, begin, end);
    out.final = final;
  }
};

inline HeadShape shape_of(const Case& c) { return {c.sizes.heads, c.sizes.head_dim, c.sizes.value_dim}; }

}  // namespace linnet::testing
