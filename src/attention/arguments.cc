#include "attention/arguments.h"

#include <algorithm>

namespace linnet {
namespace {

template <class T>
void expect_rank(const char* operation, const char* name, View<T> view, int rank, const char* layout) {
  if (view.rank() != rank)
    fail(operation, "expected {} to be {}, got {}", name, layout, to_string(view.shape()));
}

template <class T>
void expect_shape(const char* operation, const char* name, View<T> view,
                  std::initializer_list<std::int64_t> shape) {
  const std::span<const std::int64_t> wanted(shape.begin(), shape.size());
  const auto found = view.shape();
  if (found.size() != wanted.size() || !std::equal(found.begin(), found.end(), wanted.begin()))
    fail(operation, "expected {} {}, got {}", name, to_string(wanted), to_string(found));
}

void expect_some(const char* operation, const char* what, std::int64_t count) {
  if (count < 1) fail(operation, "expected {} of at least 1, got {}", what, count);
}

template <class T>
AttentionSizes check_inputs(const char* operation, View<const T> query, View<const T> key,
                            View<const T> value, const Mask& mask) {
  expect_rank(operation, "query", query, 4, "[batch, length, heads, dim]");
  expect_rank(operation, "key", key, 4, "[batch, length, heads, dim]");
  expect_rank(operation, "value", value, 4, "[batch, length, heads, dim]");
  const AttentionSizes sizes = {query.extent(0), query.extent(1), key.extent(1),
                                query.extent(2), query.extent(3), value.extent(3)};
  const auto shapes_of = [&](const char* as, View<const T> other, const char* what) {
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

void check_state_argument(const char* operation, const char* which, const State* state,
                          const AttentionInputs& inputs, std::int64_t batch) {
  if (state == nullptr) return;
  if (inputs.mask.kind() != Mask::Kind::causal)
    fail(operation, "expected a causal mask with {}, got the mask {}", which, inputs.mask.name());
  if (state->slots() != batch)
    fail(operation, "expected {} to have a slot for each of {} batch entries, got {}", which, batch,
         state->slots());
}

}  // namespace

AttentionSizes check_forward(const char* operation, const AttentionOutputs& outputs,
                             const AttentionInputs& inputs) {
  const AttentionSizes sizes = check_inputs(operation, inputs.query, inputs.key, inputs.value, inputs.mask);
  expect_shape(operation, "out", outputs.out, {sizes.batch, sizes.queries, sizes.heads, sizes.value_dim});
  if (outputs.normaliser.rank() != 0)
    expect_shape(operation, "normaliser", outputs.normaliser, {sizes.batch, sizes.queries, sizes.heads});
  check_state_argument(operation, "an initial state", inputs.initial, inputs, sizes.batch);
  check_state_argument(operation, "a final state", outputs.final, inputs, sizes.batch);
  return sizes;
}

AttentionSizes check_backward(const char* operation, const AttentionGradients& gradients,
                              View<const float> grad_out, const AttentionInputs& inputs,
                              View<const float> out, View<const float> normaliser) {
  const AttentionSizes sizes = check_inputs(operation, inputs.query, inputs.key, inputs.value, inputs.mask);
  const auto [batch, queries, keys, heads, head_dim, value_dim] = sizes;
  expect_shape(operation, "the gradient of query", gradients.query, {batch, queries, heads, head_dim});
  expect_shape(operation, "the gradient of key", gradients.key, {batch, keys, heads, head_dim});
  expect_shape(operation, "the gradient of value", gradients.value, {batch, keys, heads, value_dim});
  expect_shape(operation, "the gradient of out", grad_out, {batch, queries, heads, value_dim});
  expect_shape(operation, "out", out, {batch, queries, heads, value_dim});
  expect_shape(operation, "normaliser", normaliser, {batch, queries, heads});
  check_state_argument(operation, "an initial state", inputs.initial, inputs, batch);
  return sizes;
}

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
  for (const std::int64_t slot : slots) check_slot(operation, state, slot);
  return sizes;
}

void check_make_state(const char* operation, std::int64_t slots, const HeadShape& shape,
                      std::int64_t capacity) {
  if (slots < 0) fail(operation, "expected at least 0 slots, got {}", slots);
  if (capacity < 0) fail(operation, "expected a capacity of at least 0 tokens, got {}", capacity);
  expect_some(operation, "a number of heads", shape.heads);
  expect_some(operation, "a head size", shape.head_dim);
  expect_some(operation, "a value size", shape.value_dim);
}

AttentionSizes check_reference(const char* operation, View<const double> out, const ReferenceInputs& inputs) {
  const AttentionSizes sizes = check_inputs(operation, inputs.query, inputs.key, inputs.value, inputs.mask);
  expect_shape(operation, "out", out, {sizes.batch, sizes.queries, sizes.heads, sizes.value_dim});
  return sizes;
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

}  // namespace linnet
