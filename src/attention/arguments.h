#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/mask_geometry.h"
#include "base/fail.h"
#include "linnet/reference.h"

namespace linnet {

/// The sizes of one call, once the checks below have found that everything fits.
struct AttentionSizes {
  std::int64_t batch = 0;      ///< B
  std::int64_t queries = 0;    ///< L
  std::int64_t keys = 0;       ///< S
  std::int64_t heads = 0;      ///< H
  std::int64_t head_dim = 0;   ///< E
  std::int64_t value_dim = 0;  ///< M

  HeadShape shape() const { return {heads, head_dim, value_dim}; }
};

// Each check throws Error, "[operation] expected …, got …", before anything is written. `operation` names the
// family, "linear attention".

/// Shapes and types of inputs, out and normaliser, the mask, and that states come with a mask that takes them
/// and have B slots. What a family's states hold is its own to check: `check_held_shape`. With
/// `takes_state_alone` out may be empty where there is a final state.
AttentionSizes check_forward(const char* operation, const AttentionOutputs& outputs,
                             const AttentionInputs& inputs, bool takes_state_alone = false);

/// The same for `backward`, with the gradient of the initial state. What a final state would hold, and so
/// the size of its gradient, is the family's to check: `check_state_gradient`. With `takes_state_alone` all
/// gradients but that of the initial state may be empty.
AttentionSizes check_backward(const char* operation, const AttentionGradients& gradients,
                              ConstFloatView grad_out, const AttentionInputs& inputs, ConstFloatView out,
                              View<const float> normaliser, bool takes_state_alone = false);

template <class V>
const void* memory_of(const V& view) {
  if constexpr (requires { view.data(); })
    return view.data();
  else
    return view.dtype() == DType::f32 ? static_cast<const void*>(view.template at<float>())
                                      : view.template at<bf16>();
}

/// Throws for a view with a negative extent, and for one of elements without memory.
template <class V>
void expect_memory(const char* operation, const char* name, const V& view) {
  const auto shape = view.shape();
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; }))
    fail(operation, "expected {} with extents of at least 0, got {}", name, to_string(shape));
  if (memory_of(view) == nullptr && std::ranges::find(shape, 0) == shape.end())
    fail(operation, "expected memory for {} {}, got a null pointer", name, to_string(shape));
}

/// Throws unless the gradient of a state, where given, is [B, G] with G at least what slot b needs,
/// `floats(b)`. `which` is "the gradient of the final state", say.
template <class Floats>
void check_state_gradient(const char* operation, const char* which, View<const float> gradient,
                          std::int64_t batch, const Floats& floats) {
  if (gradient.rank() == 0) return;
  std::int64_t needed = 0;
  for (std::int64_t b = 0; b < batch; ++b) needed = std::max<std::int64_t>(needed, floats(b));
  if (gradient.rank() != 2 || gradient.extent(0) != batch || gradient.extent(1) < needed)
    fail(operation, "expected {} [{}, at least {}], got {}", which, batch, needed,
         to_string(gradient.shape()));
  expect_memory(operation, which, gradient);
}

/// Throws where there is a decay, in a family without one. For View<const float> and View<const double>.
template <class T>
void refuse_decay(const char* operation, View<const T> decay) {
  if (decay.rank() != 0) fail(operation, "expected no decay, which the linear family alone has, got one");
}

/// Throws unless `memory`, where given, has floats for that many slots, and otherwise the free memory has.
void check_memory(const char* operation, std::span<const float> memory, std::int64_t slots,
                  std::int64_t slot_floats);

/// Shapes [n, H, ·] of `step`, that the slots exist and that none is named twice. In the result batch is n
/// and queries and keys are 1. Allocates nothing.
AttentionSizes check_step(const char* operation, View<float> out, View<const float> query,
                          View<const float> key, View<const float> value, const State& state,
                          std::span<const std::int64_t> slots);

/// The same for `read`, where slots may be named several times. Value dimensions are those of `out`.
AttentionSizes check_read(const char* operation, View<float> out, View<const float> query, const State& state,
                          std::span<const std::int64_t> slots, std::span<const std::int64_t> positions);

/// H, E and M at least 1, slots and capacity at least 0.
void check_make_state(const char* operation, std::int64_t slots, const HeadShape& shape,
                      std::int64_t capacity);

/// Shapes of the double-precision reference; `out` is what has the shape of the output.
AttentionSizes check_reference(const char* operation, View<const double> out, const ReferenceInputs& inputs);

/// Shapes of the gradients of query, key and value, and of γ where that is wanted; `sizes` is what
/// `check_reference` gave for the inputs.
void check_reference_gradients(const char* operation, const AttentionSizes& sizes,
                               const ReferenceGradients& gradients, const ReferenceInputs& inputs);

/// Throws UsageError unless the scale, AttentionOptions::scale, is finite and at least 0.
void check_scale(const char* operation, float scale);

/// Throws unless `decay`, where given, has a number above 0 and at most 1 for each head and the mask is
/// causal.
template <class T>
void check_decay(const char* operation, View<const T> decay, const Mask& mask, std::int64_t heads);

/// The keys of batch entry b that a final state takes in: those of the last segment, without padding. It
/// continues the initial state where they begin at 0.
Mask::Interval kept_keys(const Mask& mask, std::int64_t b, std::int64_t keys);

/// For the references: 1 for every key that query i of batch entry b sees.
std::vector<std::uint8_t> seen_keys(const Mask& mask, std::int64_t b, std::int64_t i, std::int64_t keys);

/// Throws unless a state made for `held` serves a call with `needed`. `which` is "the initial state", say.
void check_held_shape(const char* operation, const char* which, const HeadShape& held,
                      const HeadShape& needed);

/// Throws UsageError for a number that is no Normalise.
inline void check_normalise(const char* operation, Normalise normalise) {
  if (normalise != Normalise::sum && normalise != Normalise::none)
    fail<UsageError>(operation, "expected to normalise by sum or none, got number {}",
                     static_cast<int>(normalise));
}

/// Throws unless 0 ≤ slot < state.slots().
void check_slot(const char* operation, const State& state, std::int64_t slot);

/// Throws unless 0 ≤ position ≤ State::most_position: for positions that are restored.
void check_position(const char* operation, std::int64_t position);

/// The state as the family's own type; throws when another family made it.
template <class T, class S>
T& family_state(const char* operation, const char* which, S& state) {
  T* own = dynamic_cast<T*>(&state);
  if (own == nullptr)
    fail(operation, "expected {} to be one that this attention made, got one of another family", which);
  return *own;
}

}  // namespace linnet
