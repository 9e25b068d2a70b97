#include "attention/softmax/cache.h"

#include <algorithm>
#include <new>

#include "attention/arguments.h"

namespace linnet::softmax {
namespace {

constexpr const char* kOperation = "key-value cache";

/// Head h of tokens [count, H, dim], dense and in f32.
void copy_tokens(float* to, ConstFloatView from, std::int64_t h) {
  const InputRows rows = rows_of(from, h);
  for (std::int64_t i = 0; i < from.extent(0); ++i) read_row(to + i * rows.columns, rows, i);
}

}  // namespace

hwy::AlignedFreeUniquePtr<float[]> allocate_floats(std::size_t count) {
  auto memory = hwy::AllocateAligned<float>(std::max<std::size_t>(count, 1));
  if (!memory) throw std::bad_alloc();
  return memory;
}

Cache::Cache(std::int64_t slots, const HeadShape& shape, std::int64_t capacity, float* memory)
    : shape_(shape),
      scratch_(static_cast<std::int64_t>(step_scratch(shape.head_dim, shape.value_dim) + 31) / 32 * 32),
      of_caller_(memory != nullptr),
      slots_(static_cast<std::size_t>(slots)) {
  for (Slot& slot : slots_) {
    slot.scratch = allocate_floats(static_cast<std::size_t>(shape.heads * scratch_));
    if (!of_caller_) {
      reserve(slot, capacity, 0);
      continue;
    }
    slot.capacity = most_ = capacity;
    slot.keys = memory;
    slot.values = memory + shape.heads * capacity * shape.head_dim;
    std::fill_n(memory, slot_floats(shape, capacity), 0.0f);
    memory += slot_floats(shape, capacity);
  }
}

std::int64_t Cache::slot_floats(const HeadShape& shape, std::int64_t capacity) {
  return checked_size(Shape{shape.heads, capacity, shape.head_dim + shape.value_dim}, sizeof(float)) + kSlack;
}

void Cache::check_capacity(std::int64_t tokens) const {
  if (of_caller_ && tokens > most_)
    fail(kOperation, "expected at most {} tokens, which the memory given to the state holds, got {}", most_,
         tokens);
}

std::size_t Cache::index(std::int64_t slot) const {
  check_slot(kOperation, *this, slot);
  return static_cast<std::size_t>(slot);
}

std::size_t Cache::bytes(std::int64_t slot) const {
  return static_cast<std::size_t>(saved_floats(position(slot))) * sizeof(float);
}

void Cache::reserve(Slot& slot, std::int64_t tokens, std::int64_t kept) {
  check_capacity(tokens);
  if (tokens <= slot.capacity) return;
  const std::int64_t capacity = std::max({tokens, 2 * slot.capacity, std::int64_t{16}});
  const auto grown = [&](const float* old, std::int64_t dim) {
    const Shape sizes = {shape_.heads, capacity, dim};
    Memory memory = allocate_floats(static_cast<std::size_t>(checked_size(sizes, sizeof(float)) + kSlack));
    for (std::int64_t h = 0; kept > 0 && h < shape_.heads; ++h)
      std::copy_n(old + h * slot.capacity * dim, kept * dim, memory.get() + h * capacity * dim);
    return memory;
  };
  Memory keys = grown(slot.keys, shape_.head_dim);
  slot.own_values = grown(slot.values, shape_.value_dim);
  slot.own_keys = std::move(keys);
  slot.keys = slot.own_keys.get();
  slot.values = slot.own_values.get();
  slot.capacity = capacity;
}

void Cache::reset(std::int64_t slot) { at(slot).position = 0; }

void Cache::copy(std::int64_t slot, const State& source, std::int64_t source_slot) {
  const Cache& other = family_state<const Cache>(kOperation, "the source state", source);
  check_held_shape(kOperation, "a source state", other.shape_, shape_);
  const Slot& from = other.at(source_slot);
  Slot& to = at(slot);
  if (&to == &from) return;
  reserve(to, from.position, 0);
  for (std::int64_t h = 0; h < shape_.heads; ++h) {
    std::copy_n(from.keys + h * from.capacity * shape_.head_dim, from.position * shape_.head_dim,
                to.keys + h * to.capacity * shape_.head_dim);
    std::copy_n(from.values + h * from.capacity * shape_.value_dim, from.position * shape_.value_dim,
                to.values + h * to.capacity * shape_.value_dim);
  }
  to.position = from.position;
}

void Cache::save(std::int64_t slot, std::span<float> to) const {
  const Slot& from = at(slot);
  if (to.size_bytes() != bytes(slot))
    fail(kOperation, "expected room for {} numbers, got {}", bytes(slot) / sizeof(float), to.size());
  float* next = to.data();
  for (const auto& [memory, dim] :
       {std::pair(from.keys, shape_.head_dim), std::pair(from.values, shape_.value_dim)}) {
    for (std::int64_t h = 0; h < shape_.heads; ++h)
      next = std::copy_n(memory + h * from.capacity * dim, from.position * dim, next);
  }
}

void Cache::restore(std::int64_t slot, std::span<const float> from, std::int64_t position) {
  Slot& to = at(slot);
  check_position(kOperation, position);
  const std::int64_t token = shape_.heads * (shape_.head_dim + shape_.value_dim);
  const std::int64_t found = static_cast<std::int64_t>(from.size());
  if (found % token != 0 || found / token != position)
    fail(kOperation, "expected {} numbers for each of {} tokens, got {}", token, position, found);
  reserve(to, position, 0);
  const float* next = from.data();
  for (const auto& [memory, dim] :
       {std::pair(to.keys, shape_.head_dim), std::pair(to.values, shape_.value_dim)}) {
    for (std::int64_t h = 0; h < shape_.heads; ++h, next += position * dim)
      std::copy_n(next, position * dim, memory + h * to.capacity * dim);
  }
  to.position = position;
}

void Cache::append(std::int64_t slot, ConstFloatView key, ConstFloatView value) {
  Slot& to = at(slot);
  const std::int64_t count = key.extent(0);
  reserve(to, to.position + count, to.position);
  for (std::int64_t h = 0; h < shape_.heads; ++h) {
    const std::int64_t next = h * to.capacity + to.position;
    copy_tokens(to.keys + next * shape_.head_dim, key, h);
    copy_tokens(to.values + next * shape_.value_dim, value, h);
  }
  to.position += count;
}

void Cache::erase(std::int64_t slot, std::int64_t first, std::int64_t count) {
  Slot& from = at(slot);
  const std::int64_t behind = from.position - first - count;
  for (const auto& [memory, dim] :
       {std::pair(from.keys, shape_.head_dim), std::pair(from.values, shape_.value_dim)}) {
    for (std::int64_t h = 0; h < shape_.heads; ++h) {
      float* to = memory + (h * from.capacity + first) * dim;
      std::copy_n(to + count * dim, behind * dim, to);
    }
  }
  from.position -= count;
}

KeyRange Cache::head(std::int64_t slot, std::int64_t h) const {
  const Slot& from = at(slot);
  KeyRange range;
  range.key = dense_rows(from.keys + h * from.capacity * shape_.head_dim, shape_.head_dim);
  range.value = dense_rows(from.values + h * from.capacity * shape_.value_dim, shape_.value_dim);
  range.count = from.position;
  return range;
}

}  // namespace linnet::softmax
