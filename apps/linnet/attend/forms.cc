#include "attend/forms.h"

#include <numeric>
#include <vector>

#include "attention/arguments.h"
#include "base/fail.h"

namespace linnet {
namespace {

HeadShape shape_of(const AttentionInputs& inputs) {
  return {inputs.query.extent(2), inputs.query.extent(3), inputs.value.extent(3)};
}

/// Token t of every batch entry: [B, H, D] of x [B, L, H, D].
template <class T>
View<T> token_of(View<T> x, std::int64_t t) {
  return {x.at(0, t), {x.extent(0), x.extent(2), x.extent(3)}, {x.stride(0), x.stride(2), 1}};
}

}  // namespace

Attended attend_parallel(Context& context, const Attention& attention, const AttentionInputs& inputs,
                         bool final_state) {
  const std::int64_t batch = inputs.query.extent(0), length = inputs.query.extent(1),
                     heads = inputs.query.extent(2);
  Attended result;
  result.out = Tensor(inputs.query.dtype(), {batch, length, heads, inputs.value.extent(3)});
  result.normaliser = Tensor::of<float>({batch, length, heads});
  AttentionOutputs outputs{result.out.float_view(), result.normaliser.view<float>()};
  outputs.non_positive = &result.non_positive;
  outputs.vanished = &result.vanished;
  if (final_state) result.final = attention.make_state(batch, shape_of(inputs));
  outputs.final = result.final.get();
  attention.forward(context, outputs, inputs);
  return result;
}

Attended attend_recurrent(Context& context, const Attention& attention, const AttentionInputs& inputs) {
  const DType type = inputs.query.dtype();
  if (type != DType::f32)
    fail("attend", "expected q, k and v in f32 with --form recurrent, got {}", name_of(type));
  const std::int64_t batch = inputs.query.extent(0), length = inputs.query.extent(1);
  Attended result;
  result.out = Tensor::of<float>({batch, length, inputs.query.extent(2), inputs.value.extent(3)});
  check_forward("attend", {.out = result.out.float_view()}, inputs);
  result.final = attention.make_state(batch, shape_of(inputs));
  std::vector<std::int64_t> slots(static_cast<std::size_t>(batch));
  std::iota(slots.begin(), slots.end(), 0);
  if (inputs.initial != nullptr)
    for (const std::int64_t slot : slots) result.final->copy(slot, *inputs.initial, slot);
  const View<const float> query = inputs.query.as<const float>(), key = inputs.key.as<const float>(),
                          value = inputs.value.as<const float>();
  for (std::int64_t t = 0; t < length; ++t)
    attention.step(context, token_of(result.out.view<float>(), t), token_of(query, t), token_of(key, t),
                   token_of(value, t), *result.final, slots, inputs.decay);
  return result;
}

}  // namespace linnet
