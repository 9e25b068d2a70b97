#include "linnet/attention.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "attention_options.h"
#include "context.h"
#include "errors.h"
#include "mask.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace linnet::python {
namespace {

/// A state, with the attention that made it. Calls that use it take turns.
struct StateObject {
  std::shared_ptr<const Attention> attention;
  HeadShape shape;
  std::unique_ptr<State> state;
  CallMutex mutex;

  void check_slot(const char* operation, std::int64_t slot) const {
    if (slot < 0 || slot >= state->slots())
      refuse(operation, "a slot in 0 ... " + std::to_string(state->slots() - 1), std::to_string(slot));
  }
};

/// An attention with its options, which the references take.
struct AttentionObject {
  AttentionOptions options;
  std::shared_ptr<const Attention> attention;
};

State* own_state(const AttentionObject& self, StateObject* state, const char* operation) {
  if (state == nullptr) return nullptr;
  if (state->attention != self.attention)
    refuse(operation, "a state that this attention made", "one of another");
  return state->state.get();
}

/// The locks of a call: its context's, and those of its states in the order of their addresses.
class Turn {
 public:
  Turn(SharedContext& context, StateObject* one, StateObject* other) : computing_(context.mutex) {
    if (other != nullptr && (one == nullptr || std::less<>()(other, one))) std::swap(one, other);
    if (one != nullptr) first_ = std::unique_lock(one->mutex);
    if (other != nullptr && other != one) second_ = std::unique_lock(other->mutex);
  }

 private:
  Computing computing_;
  std::unique_lock<CallMutex> first_, second_;
};

AttentionInputs inputs_of(const char* operation, nb::handle query, nb::handle key, nb::handle value,
                          const MaskObject& mask, const State* initial, std::int64_t position,
                          nb::handle decay, nb::handle key_projection, nb::handle value_projection) {
  if (position < 0) refuse(operation, "a position of at least 0", std::to_string(position));
  return {.query = float_view_of(query, operation, "q"),
          .key = float_view_of(key, operation, "k"),
          .value = float_view_of(value, operation, "v"),
          .mask = mask.mask,
          .initial = initial,
          .position = position,
          .decay = optional_view<const float>(decay, operation, "decay"),
          .key_projection = optional_view<const float>(key_projection, operation, "key_projection"),
          .value_projection = optional_view<const float>(value_projection, operation, "value_projection")};
}

void forward(const AttentionObject& self, SharedContext& context, nb::handle out, nb::handle query,
             nb::handle key, nb::handle value, const MaskObject& mask, nb::handle normaliser,
             StateObject* initial, StateObject* final, std::int64_t position, nb::handle decay,
             nb::handle key_projection, nb::handle value_projection) {
  constexpr const char* operation = "attention";
  const AttentionInputs inputs =
      inputs_of(operation, query, key, value, mask, own_state(self, initial, operation), position, decay,
                key_projection, value_projection);
  const AttentionOutputs outputs{.out = writable_float_view_of(out, operation, "out"),
                                 .normaliser = optional_view<float>(normaliser, operation, "normaliser"),
                                 .final = own_state(self, final, operation)};
  const Turn turn(context, initial, final);
  self.attention->forward(context.context, outputs, inputs);
}

void backward(const AttentionObject& self, SharedContext& context, nb::handle grad_query, nb::handle grad_key,
              nb::handle grad_value, nb::handle grad_out, nb::handle query, nb::handle key, nb::handle value,
              const MaskObject& mask, nb::handle out, nb::handle normaliser, StateObject* initial,
              std::int64_t position, nb::handle decay, nb::handle key_projection, nb::handle value_projection,
              nb::handle grad_decay, nb::handle grad_key_projection, nb::handle grad_value_projection,
              nb::handle grad_initial, nb::handle grad_final) {
  constexpr const char* operation = "attention gradients";
  const AttentionInputs inputs =
      inputs_of(operation, query, key, value, mask, own_state(self, initial, operation), position, decay,
                key_projection, value_projection);
  const AttentionGradients gradients{
      .query = writable_float_view_of(grad_query, operation, "grad_q"),
      .key = writable_float_view_of(grad_key, operation, "grad_k"),
      .value = writable_float_view_of(grad_value, operation, "grad_v"),
      .decay = optional_view<float>(grad_decay, operation, "grad_decay"),
      .key_projection = optional_view<float>(grad_key_projection, operation, "grad_key_projection"),
      .value_projection = optional_view<float>(grad_value_projection, operation, "grad_value_projection"),
      .initial = optional_view<float>(grad_initial, operation, "grad_initial"),
      .final = optional_view<const float>(grad_final, operation, "grad_final")};
  const ConstFloatView upper = float_view_of(grad_out, operation, "grad_out");
  const ConstFloatView result = float_view_of(out, operation, "out");
  const auto denominators = view_of<const float>(normaliser, operation, "normaliser");
  const Turn turn(context, initial, nullptr);
  self.attention->backward(context.context, gradients, upper, inputs, result, denominators);
}

void check_distinct(const char* operation, std::vector<std::int64_t> slots) {
  std::ranges::sort(slots);
  if (const auto twice = std::ranges::adjacent_find(slots); twice != slots.end())
    refuse(operation, "each slot at most once", "slot " + std::to_string(*twice) + " twice");
}

void step(const AttentionObject& self, SharedContext& context, nb::handle out, nb::handle query,
          nb::handle key, nb::handle value, StateObject& state, const std::vector<std::int64_t>& slots,
          nb::handle decay) {
  constexpr const char* operation = "attention step";
  State& own = *own_state(self, &state, operation);
  const auto q = view_of<const float>(query, operation, "q");
  const auto k = view_of<const float>(key, operation, "k");
  const auto v = view_of<const float>(value, operation, "v");
  const auto result = view_of<float>(out, operation, "out");
  const auto gamma = optional_view<const float>(decay, operation, "decay");
  check_distinct(operation, slots);
  const Turn turn(context, &state, nullptr);
  self.attention->step(context.context, result, q, k, v, own, slots, gamma);
}

std::unique_ptr<StateObject> make_state(const AttentionObject& self, std::int64_t slots, std::int64_t heads,
                                        std::int64_t head_dim, std::int64_t value_dim,
                                        std::int64_t capacity) {
  auto made = std::make_unique<StateObject>();
  made->attention = self.attention;
  made->shape = {heads, head_dim, value_dim};
  made->state = self.attention->make_state(slots, {heads, head_dim, value_dim}, capacity);
  return made;
}

std::unique_ptr<StateObject> clone(StateObject& self) {
  auto made = std::make_unique<StateObject>();
  const Computing turn(self.mutex);
  made->attention = self.attention;
  made->shape = self.shape;
  made->state = self.attention->make_state(self.state->slots(), self.shape);
  for (std::int64_t slot = 0; slot < self.state->slots(); ++slot) made->state->copy(slot, *self.state, slot);
  return made;
}

void restore(StateObject& self, std::int64_t slot, nb::handle numbers, std::int64_t position) {
  self.check_slot("restore", slot);
  const auto from = span_of<const float>(numbers, "restore", "numbers");
  const Computing turn(self.mutex);
  self.state->restore(slot, from, position);
}

void bind_state(nb::module_& module) {
  nb::class_<StateObject>(module, "State",
                          "The state of the recurrent form: one slot per batch entry or stream, float32. "
                          "``linnet.Attention.state`` makes one.")
      .def_prop_ro("slots", [](const StateObject& self) { return self.state->slots(); })
      .def(
          "position",
          [](StateObject& self, std::int64_t slot) {
            self.check_slot("position", slot);
            const Computing turn(self.mutex);
            return self.state->position(slot);
          },
          "slot"_a = 0, "Tokens that a slot has seen.")
      .def(
          "bytes",
          [](StateObject& self, std::int64_t slot) {
            self.check_slot("bytes", slot);
            const Computing turn(self.mutex);
            return self.state->bytes(slot);
          },
          "slot"_a = 0, "Bytes that the slot's tokens need.")
      .def(
          "gradient_floats",
          [](StateObject& self, std::int64_t slot) {
            self.check_slot("gradient_floats", slot);
            const Computing turn(self.mutex);
            return self.state->gradient_floats(slot);
          },
          "slot"_a = 0, "Numbers of the slot's gradient.")
      .def(
          "reset",
          [](StateObject& self, std::int64_t slot) {
            self.check_slot("reset", slot);
            const Computing turn(self.mutex);
            self.state->reset(slot);
          },
          "slot"_a = 0, "Clears the slot for a new stream.")
      .def(
          "copy",
          [](StateObject& self, std::int64_t slot, std::int64_t source) {
            self.check_slot("copy", slot);
            self.check_slot("copy", source);
            const Computing turn(self.mutex);
            self.state->copy(slot, *self.state, source);
          },
          "slot"_a, "source"_a, "Makes slot `slot` a copy of slot `source`.")
      .def("clone", &clone, "A copy of all slots.")
      .def(
          "save",
          [](StateObject& self, std::int64_t slot) {
            self.check_slot("save", slot);
            std::vector<float> numbers;
            {
              const Computing turn(self.mutex);
              numbers.resize(static_cast<std::size_t>(self.state->saved_floats(self.state->position(slot))));
              self.state->save(slot, numbers);
            }
            return numpy_of(std::move(numbers));
          },
          "slot"_a = 0, "The slot's numbers, float32, in the layout of linnet/attention.h (State).")
      .def("restore", usage<&restore>, "slot"_a, "numbers"_a, "position"_a,
           "Reads what `save` wrote; `position` is the tokens it stands for.");
}

}  // namespace

void bind_attention(nb::module_& module) {
  bind_attention_options(module);
  bind_state(module);
  nb::class_<AttentionObject>(module, "Attention", "A family with its options, on arrays and on raw memory.")
      .def(
          "__init__",
          [](AttentionObject* self, const AttentionOptions& options) {
            new (self) AttentionObject{options, make_attention(options)};
          },
          "options"_a)
      .def_prop_ro("options", [](const AttentionObject& self) { return self.options; })
      .def(
          "forward", usage<&forward>, "context"_a, "out"_a, "q"_a, "k"_a, "v"_a, "mask"_a,
          "normaliser"_a.none() = nb::none(), "initial"_a.none() = nb::none(), "final"_a.none() = nb::none(),
          "position"_a = 0, "decay"_a.none() = nb::none(), "key_projection"_a.none() = nb::none(),
          "value_projection"_a.none() = nb::none(),
          "Assigns out [B, L, H, M], and normaliser [B, L, H] where it is given. All arguments are arrays or "
          "`Array`.")
      .def("backward", usage<&backward>, "context"_a, "grad_q"_a, "grad_k"_a, "grad_v"_a, "grad_out"_a, "q"_a,
           "k"_a, "v"_a, "mask"_a, "out"_a, "normaliser"_a, "initial"_a.none() = nb::none(), "position"_a = 0,
           "decay"_a.none() = nb::none(), "key_projection"_a.none() = nb::none(),
           "value_projection"_a.none() = nb::none(), "grad_decay"_a.none() = nb::none(),
           "grad_key_projection"_a.none() = nb::none(), "grad_value_projection"_a.none() = nb::none(),
           "grad_initial"_a.none() = nb::none(), "grad_final"_a.none() = nb::none(),
           "Assigns the gradients that are given; grad_final [B, G] is read.")
      .def("make_state", usage<&make_state>, "slots"_a, "heads"_a, "head_dim"_a, "value_dim"_a,
           "capacity"_a = 0)
      .def("step", usage<&step>, "context"_a, "out"_a, "q"_a, "k"_a, "v"_a, "state"_a, "slots"_a,
           "decay"_a.none() = nb::none(),
           "One token for each of n slots: q [n, H, E], k, v and out [n, H, M], float32.");
}

}  // namespace linnet::python
