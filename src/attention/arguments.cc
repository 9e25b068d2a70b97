#include "attention/arguments.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <functional>
#include <utility>

#include "base/memory.h"

namespace linnet {
namespace {

template <class V>
void expect_rank(const char* operation, const char* name, const V& view, int rank, const char* layout) {
  if (view.rank() != rank)
    fail(operation, "expected {} to be {}, got {}", name, layout, to_string(view.shape()));
  expect_memory(operation, name, view);
}

template <class V>
void expect_shape(const char* operation, const char* name, const V& view,
                  std::initializer_list<std::int64_t> shape) {
  const std::span<const std::int64_t> wanted(shape.begin(), shape.size());
  const auto found = view.shape();
  if (found.size() != wanted.size() || !std::equal(found.begin(), found.end(), wanted.begin()))
    fail(operation, "expected {} {}, got {}", name, to_string(wanted), to_string(found));
  expect_memory(operation, name, view);
}

void expect_type_of_query(const char* operation, const char* name, const ConstFloatView& view,
                          const ConstFloatView& query) {
  if (view.dtype() != query.dtype())
    fail(operation, "expected {} in {} as query, got {}", name, name_of(query.dtype()),
         name_of(view.dtype()));
}

void expect_some(const char* operation, const char* what, std::int64_t count) {
  if (count < 1) fail(operation, "expected {} of at least 1, got {}", what, count);
}

template <class V>
AttentionSizes check_inputs(const char* operation, const V& query, const V& key, const V& value,
                            const Mask& mask) {
  expect_rank(operation, "query", query, 4, "[batch, length, heads, dim]");
  expect_rank(operation, "key", key, 4, "[batch, length, heads, dim]");
  expect_rank(operation, "value", value, 4, "[batch, length, heads, dim]");
  const AttentionSizes sizes = {query.extent(0), query.extent(1), key.extent(1),
                                query.extent(2), query.extent(3), value.extent(3)};
  const auto shapes_of = [&](const char* as, const V& other, const char* what) {
    fail(operation, "expected {} {} to have as {} as query, got {}", as, to_string(other.shape()), what,
         to_string(query.shape()));
  };
  if (key.extent(0) != sizes.batch) shapes_of("key", key, "many batch entries");
  if (value.extent(0) != sizes.batch) shapes_of("value", value, "many batch entries");
  if (key.extent(2) != sizes.heads) shapes_of("key", key, "many heads");
  if (value.extent(2) != sizes.heads) shapes_of("value", value, "many heads");
  if (key.extent(3) != sizes.head_dim) shapes_of("key", key, "wide heads");
  if (value.extent(1) != sizes.keys)
    fail(operation, "expected value {} to be as long as key, got {}", to_string(value.shape()),
         to_string(key.shape()));
  expect_some(operation, "a number of heads", sizes.heads);
  expect_some(operation, "a head size", sizes.head_dim);
  expect_some(operation, "a value size", sizes.value_dim);
  mask.check(operation, sizes.batch, sizes.queries, sizes.keys);
  return sizes;
}

AttentionSizes check_call(const char* operation, const AttentionInputs& inputs) {
  const AttentionSizes sizes = check_inputs(operation, inputs.query, inputs.key, inputs.value, inputs.mask);
  expect_type_of_query(operation, "key", inputs.key, inputs.query);
  expect_type_of_query(operation, "value", inputs.value, inputs.query);
  check_position(operation, inputs.position);
  return sizes;
}

/// Throws where a slot is named twice. Ascending slots take one pass; others one for every 4,096 slots of the
/// state, since a step allocates nothing.
void check_distinct(const char* operation, const State& state, std::span<const std::int64_t> slots) {
  if (std::ranges::adjacent_find(slots, std::greater_equal{}) == slots.end()) return;
  constexpr std::int64_t size = 4096;
  std::bitset<size> met;
  for (std::int64_t first = 0; first < state.slots(); first += size, met.reset()) {
    for (const std::int64_t slot : slots) {
      if (slot < first || slot >= first + size) continue;
      const auto at = static_cast<std::size_t>(slot - first);
      if (met[at]) fail(operation, "expected each slot at most once, got slot {} again", slot);
      met.set(at);
    }
  }
}

void check_state_argument(const char* operation, const char* which, const State* state,
                          const AttentionInputs& inputs, std::int64_t batch) {
  if (state == nullptr) return;
  if (!inputs.mask.takes_state())
    fail(operation, "expected a causal or prefix mask with {}, got the mask {}", which, inputs.mask.name());
  if (state->slots() != batch)
    fail(operation, "expected {} to have a slot for each of {} batch entries, got {}", which, batch,
         state->slots());
}

}  // namespace

AttentionSizes check_forward(const char* operation, const AttentionOutputs& outputs,
                             const AttentionInputs& inputs, bool takes_state_alone) {
  const AttentionSizes sizes = check_call(operation, inputs);
  if (!takes_state_alone || outputs.out.rank() != 0 || outputs.final == nullptr) {
    expect_shape(operation, "out", outputs.out, {sizes.batch, sizes.queries, sizes.heads, sizes.value_dim});
    expect_type_of_query(operation, "out", outputs.out, inputs.query);
  }
  if (outputs.normaliser.rank() != 0)
    expect_shape(operation, "normaliser", outputs.normaliser, {sizes.batch, sizes.queries, sizes.heads});
  check_state_argument(operation, "an initial state", inputs.initial, inputs, sizes.batch);
  check_state_argument(operation, "a final state", outputs.final, inputs, sizes.batch);
  return sizes;
}

AttentionSizes check_backward(const char* operation, const AttentionGradients& gradients,
                              ConstFloatView grad_out, const AttentionInputs& inputs, ConstFloatView out,
                              View<const float> normaliser, bool takes_state_alone) {
  const AttentionSizes sizes = check_call(operation, inputs);
  const bool state_alone = takes_state_alone && gradients.initial.rank() != 0 &&
                           gradients.query.rank() == 0 && gradients.key.rank() == 0 &&
                           gradients.value.rank() == 0 && gradients.decay.rank() == 0;
  const auto [batch, queries, keys, heads, head_dim, value_dim] = sizes;
  const auto expect = [&](const char* name, const ConstFloatView& view, std::int64_t length,
                          std::int64_t dim) {
    expect_shape(operation, name, view, {inputs.query.extent(0), length, inputs.query.extent(2), dim});
    expect_type_of_query(operation, name, view, inputs.query);
  };
  if (!state_alone) {
    expect("the gradient of query", gradients.query, queries, head_dim);
    expect("the gradient of key", gradients.key, keys, head_dim);
    expect("the gradient of value", gradients.value, keys, value_dim);
  }
  expect("the gradient of out", grad_out, queries, value_dim);
  expect("out", out, queries, value_dim);
  expect_shape(operation, "normaliser", normaliser, {batch, queries, heads});
  if (gradients.decay.rank() != 0) {
    if (inputs.decay.rank() == 0) fail(operation, "expected a decay where its gradient is wanted, got none");
    expect_shape(operation, "the gradient of decay", gradients.decay, {heads});
  }
  check_state_argument(operation, "an initial state", inputs.initial, inputs, batch);
  if (gradients.initial.rank() != 0) {
    if (inputs.initial == nullptr)
      fail(operation, "expected an initial state where its gradient is wanted, got none");
    check_state_gradient(operation, "the gradient of the initial state", gradients.initial, batch,
                         [&](std::int64_t b) { return inputs.initial->gradient_floats(b); });
  }
  if (gradients.final.rank() != 0 && !inputs.mask.takes_state())
    fail(operation, "expected a causal or prefix mask with the gradient of a final state, got the mask {}",
         inputs.mask.name());
  return sizes;
}

void check_memory(const char* operation, std::span<const float> memory, std::int64_t slots,
                  std::int64_t slot_floats) {
  const std::int64_t found = static_cast<std::int64_t>(memory.size());
  if (memory.data() == nullptr) {
    const double bytes = sizeof(float) * static_cast<double>(slots) * static_cast<double>(slot_floats);
    if (bytes > unasked_bytes)
      require_memory(fmt::format("a state of {} slot{}", slots, slots == 1 ? "" : "s"), bytes);
  } else if (slots > 0 && found / slots < slot_floats) {
    fail(operation, "expected memory of {} floats for each of {} slots, got {} floats", slot_floats, slots,
         found);
  }
}

template <class T>
void check_decay(const char* operation, View<const T> decay, const Mask& mask, std::int64_t heads) {
  if (decay.rank() == 0) return;
  if (mask.kind() != Mask::Kind::causal)
    fail(operation, "expected a causal mask with a decay, got the mask {}", mask.name());
  expect_shape(operation, "decay", decay, {heads});
  for (std::int64_t h = 0; h < heads; ++h) {
    if (!(decay(h) > 0 && decay(h) <= 1))
      fail(operation, "expected a decay above 0 and at most 1 for head {}, got {}", h, decay(h));
  }
}
template void check_decay(const char*, View<const float>, const Mask&, std::int64_t);
template void check_decay(const char*, View<const double>, const Mask&, std::int64_t);

AttentionSizes check_step(const char* operation, View<float> out, View<const float> query,
                          View<const float> key, View<const float> value, const State& state,
                          std::span<const std::int64_t> slots) {
  expect_rank(operation, "query", query, 3, "[streams, heads, dim]");
  expect_rank(operation, "value", value, 3, "[streams, heads, dim]");
  const std::int64_t streams = query.extent(0), heads = query.extent(1);
  const AttentionSizes sizes = {streams, 1, 1, heads, query.extent(2), value.extent(2)};
  expect_shape(operation, "key", key, {streams, heads, sizes.head_dim});
  expect_shape(operation, "value", value, {streams, heads, sizes.value_dim});
  expect_shape(operation, "out", out, {streams, heads, sizes.value_dim});
  if (static_cast<std::int64_t>(slots.size()) != streams)
    fail(operation, "expected a slot for each of {} streams, got {}", streams, slots.size());
  for (const std::int64_t slot : slots) {
    check_slot(operation, state, slot);
    if (state.position(slot) >= State::most_position)
      fail(operation, "expected a slot below position 2^53, got slot {} at {}", slot, state.position(slot));
  }
  check_distinct(operation, state, slots);
  return sizes;
}

AttentionSizes check_read(const char* operation, View<float> out, View<const float> query, const State& state,
                          std::span<const std::int64_t> slots, std::span<const std::int64_t> positions) {
  expect_rank(operation, "query", query, 3, "[queries, heads, dim]");
  expect_rank(operation, "out", out, 3, "[queries, heads, dim]");
  const AttentionSizes sizes = {query.extent(0), 1, 1, query.extent(1), query.extent(2), out.extent(2)};
  expect_shape(operation, "out", out, {sizes.batch, sizes.heads, sizes.value_dim});
  if (std::ssize(slots) != sizes.batch)
    fail(operation, "expected a slot for each of {} queries, got {}", sizes.batch, slots.size());
  if (!positions.empty() && std::ssize(positions) != sizes.batch)
    fail(operation, "expected a position for each of {} queries, got {}", sizes.batch, positions.size());
  for (const std::int64_t slot : slots) check_slot(operation, state, slot);
  for (const std::int64_t position : positions) check_position(operation, position);
  return sizes;
}

void check_make_state(const char* operation, std::int64_t slots, const HeadShape& shape,
                      std::int64_t capacity) {
  if (slots < 0) fail(operation, "expected at least 0 slots, got {}", slots);
  if (capacity < 0) fail(operation, "expected a capacity of at least 0 tokens, got {}", capacity);
  // Products and sums of them are whole numbers of 64 bits.
  constexpr std::int64_t most = std::int64_t{1} << 31;
  for (const auto& [what, size] :
       {std::pair("a number of heads", shape.heads), std::pair("a head size", shape.head_dim),
        std::pair("a value size", shape.value_dim)}) {
    expect_some(operation, what, size);
    if (size > most) fail(operation, "expected {} of at most 2^31, got {}", what, size);
  }
}

AttentionSizes check_reference(const char* operation, View<const double> out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_inputs(operation, inputs.query, inputs.key, inputs.value, inputs.mask);
  expect_shape(operation, "out", out, {sizes.batch, sizes.queries, sizes.heads, sizes.value_dim});
  return sizes;
}

void check_reference_gradients(const char* operation, const AttentionSizes& sizes,
                               const ReferenceGradients& gradients, const ReferenceInputs& inputs) {
  const auto [batch, queries, keys, heads, head_dim, value_dim] = sizes;
  expect_shape(operation, "the gradient of query", gradients.query, {batch, queries, heads, head_dim});
  expect_shape(operation, "the gradient of key", gradients.key, {batch, keys, heads, head_dim});
  expect_shape(operation, "the gradient of value", gradients.value, {batch, keys, heads, value_dim});
  if (gradients.decay.rank() == 0) return;
  if (inputs.decay.rank() == 0) fail(operation, "expected a decay where its gradient is wanted, got none");
  expect_shape(operation, "the gradient of decay", gradients.decay, {heads});
}

void check_scale(const char* operation, float scale) {
  if (!std::isfinite(scale) || scale < 0)
    fail<UsageError>(operation, "expected a scale of at least 0, got {}", scale);
}

Mask::Interval kept_keys(const Mask& mask, std::int64_t b, std::int64_t keys) {
  const std::int64_t begin = keys > 0 ? segment_of(mask, b, keys - 1, keys).begin : 0;
  return {begin, std::max(begin, visible_keys(mask, b, keys))};
}

std::vector<std::uint8_t> seen_keys(const Mask& mask, std::int64_t b, std::int64_t i, std::int64_t keys) {
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(keys));
  mask.fill({seen.data(), {1, keys}}, b, i, 0, keys);
  return seen;
}

void check_held_shape(const char* operation, const char* which, const HeadShape& held,
                      const HeadShape& needed) {
  if (held.heads != needed.heads || held.head_dim != needed.head_dim || held.value_dim != needed.value_dim)
    fail(operation,
         "expected {} for {} heads of {} and values of {}, got one for {} heads of {} and values of {}",
         which, needed.heads, needed.head_dim, needed.value_dim, held.heads, held.head_dim, held.value_dim);
}

void check_slot(const char* operation, const State& state, std::int64_t slot) {
  if (slot < 0 || slot >= state.slots())
    fail(operation, "expected a slot from 0 to {}, got {}", state.slots() - 1, slot);
}

void check_position(const char* operation, std::int64_t position) {
  if (position < 0 || position > State::most_position)
    fail(operation, "expected a position from 0 to 2^53, got {}", position);
}

}  // namespace linnet
