#include "attention/sparse/ring.h"

#include <algorithm>

#include "attention/arguments.h"
#include "attention/softmax/cache.h"
#include "attention/tiles/rows.h"

namespace linnet::sparse {
namespace {

constexpr const char* kOperation = "ring of keys and values";

}  // namespace

Ring::Ring(std::int64_t slots, const HeadShape& shape, std::int64_t left, float* memory)
    : shape_(shape), capacity_(left + 1), slots_(static_cast<std::size_t>(slots)) {
  const auto room = [&](std::int64_t dim) {
    const Shape sizes = {shape.heads, capacity_, dim};
    return static_cast<std::size_t>(checked_size(sizes, sizeof(float)) + softmax::kSlack);
  };
  for (Slot& slot : slots_) {
    slot.scratch = softmax::allocate_floats(softmax::step_scratch(shape.head_dim, shape.value_dim));
    if (memory != nullptr) {
      slot.keys = memory;
      slot.values = memory + shape.heads * capacity_ * shape.head_dim;
      std::fill_n(memory, slot_floats(shape, left), 0.0f);
      memory += slot_floats(shape, left);
      continue;
    }
    slot.own_keys = softmax::allocate_floats(room(shape.head_dim));
    slot.own_values = softmax::allocate_floats(room(shape.value_dim));
    slot.keys = slot.own_keys.get();
    slot.values = slot.own_values.get();
  }
}

std::int64_t Ring::slot_floats(const HeadShape& shape, std::int64_t left) {
  return softmax::Cache::slot_floats(shape, left + 1);
}

std::size_t Ring::index(std::int64_t slot) const {
  check_slot(kOperation, *this, slot);
  return static_cast<std::size_t>(slot);
}

std::size_t Ring::bytes(std::int64_t slot) const {
  return static_cast<std::size_t>(saved_floats(position(slot))) * sizeof(float);
}

void Ring::reset(std::int64_t slot) { at(slot).position = 0; }

void Ring::copy(std::int64_t slot, const State& source, std::int64_t source_slot) {
  const Ring& other = family_state<const Ring>(kOperation, "the source state", source);
  check_held_shape(kOperation, "a source state", other.shape_, shape_);
  if (other.capacity_ != capacity_)
    fail(kOperation, "expected a source state of {} tokens, got one of {}", capacity_, other.capacity_);
  const Slot& from = other.at(source_slot);
  Slot& to = at(slot);
  if (&to == &from) return;
  to.position = from.position;
  const std::int64_t rows = std::min(from.position, capacity_);
  for (std::int64_t h = 0; h < shape_.heads; ++h) {
    const std::int64_t first = h * capacity_;
    std::copy_n(from.keys + first * shape_.head_dim, rows * shape_.head_dim,
                to.keys + first * shape_.head_dim);
    std::copy_n(from.values + first * shape_.value_dim, rows * shape_.value_dim,
                to.values + first * shape_.value_dim);
  }
}

void Ring::save(std::int64_t slot, std::span<float> to) const {
  if (to.size_bytes() != bytes(slot))
    fail(kOperation, "expected room for {} numbers, got {}", bytes(slot) / sizeof(float), to.size());
  float* next = to.data();
  for (std::int64_t h = 0; h < shape_.heads; ++h)
    for (std::int64_t age = held(slot); age-- > 0;)
      next = std::copy_n(key(slot, age, h), shape_.head_dim, next);
  for (std::int64_t h = 0; h < shape_.heads; ++h)
    for (std::int64_t age = held(slot); age-- > 0;)
      next = std::copy_n(value(slot, age, h), shape_.value_dim, next);
}

void Ring::restore(std::int64_t slot, std::span<const float> from, std::int64_t position) {
  Slot& to = at(slot);
  check_position(kOperation, position);
  const std::int64_t held = std::min(position, capacity_);
  const std::int64_t token = shape_.heads * (shape_.head_dim + shape_.value_dim);
  const std::int64_t found = static_cast<std::int64_t>(from.size());
  if (found % token != 0 || found / token != held)
    fail(kOperation, "expected {} numbers for each of {} tokens, got {}", token, held, found);
  to.position = position;
  const float* next = from.data();
  for (std::int64_t h = 0; h < shape_.heads; ++h)
    for (std::int64_t t = position - held; t < position; ++t, next += shape_.head_dim)
      std::copy_n(next, shape_.head_dim, to.keys + (h * capacity_ + t % capacity_) * shape_.head_dim);
  for (std::int64_t h = 0; h < shape_.heads; ++h)
    for (std::int64_t t = position - held; t < position; ++t, next += shape_.value_dim)
      std::copy_n(next, shape_.value_dim, to.values + (h * capacity_ + t % capacity_) * shape_.value_dim);
}

void Ring::append(std::int64_t slot, ConstFloatView key, ConstFloatView value) {
  Slot& to = at(slot);
  const std::int64_t count = key.extent(0);
  for (std::int64_t i = std::max<std::int64_t>(0, count - capacity_); i < count; ++i) {
    for (std::int64_t h = 0; h < shape_.heads; ++h) {
      const std::int64_t row = h * capacity_ + (to.position + i) % capacity_;
      read_row(to.keys + row * shape_.head_dim, rows_of(key, h), i);
      read_row(to.values + row * shape_.value_dim, rows_of(value, h), i);
    }
  }
  to.position += count;
}

const float* Ring::key(std::int64_t slot, std::int64_t age, std::int64_t h) const {
  return keys(slot, h) + (at(slot).position - 1 - age) % capacity_ * shape_.head_dim;
}

const float* Ring::value(std::int64_t slot, std::int64_t age, std::int64_t h) const {
  return values(slot, h) + (at(slot).position - 1 - age) % capacity_ * shape_.value_dim;
}

const float* Ring::keys(std::int64_t slot, std::int64_t h) const {
  return at(slot).keys + h * capacity_ * shape_.head_dim;
}

const float* Ring::values(std::int64_t slot, std::int64_t h) const {
  return at(slot).values + h * capacity_ * shape_.value_dim;
}

}  // namespace linnet::sparse
