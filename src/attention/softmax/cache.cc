#include "attention/softmax/cache.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "attention/arguments.h"

namespace linnet::softmax {
namespace {

constexpr const char* kOperation = "key-value cache";

/// `count` rows, bit for bit where both are of one type.
void copy_rows(const OutputRows& to, const InputRows& from, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(from.columns * from.element());
  for (std::int64_t i = 0; i < count; ++i) {
    if (from.type == to.type)
      std::memcpy(to.at(i), from.at(i), bytes);
    else if (to.half())
      write_row(to, i, from.from(i).floats());
    else
      read_row(to.from(i).floats(), from, i);
  }
}

}  // namespace

hwy::AlignedFreeUniquePtr<float[]> allocate_floats(std::size_t count) {
  auto memory = hwy::AllocateAligned<float>(std::max<std::size_t>(count, 1));
  if (!memory) throw std::bad_alloc();
  return memory;
}

Cache::Cache(std::int64_t slots, const HeadShape& shape, std::int64_t capacity, float* memory, DType type)
    : type_(type),
      shape_(shape),
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
    slot.keys = reinterpret_cast<std::byte*>(memory);
    slot.values = slot.keys + bytes_of(shape.heads * capacity, shape.head_dim);
    std::fill_n(memory, slot_floats(shape, capacity, type), 0.0f);
    memory += slot_floats(shape, capacity, type);
  }
}

std::int64_t Cache::slot_floats(const HeadShape& shape, std::int64_t capacity, DType type) {
  const std::int64_t numbers =
      checked_size(Shape{shape.heads, capacity, shape.head_dim + shape.value_dim}, sizeof(float));
  return (type == DType::bf16 ? (numbers + 1) / 2 : numbers) + kSlack;
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
  return static_cast<std::size_t>(saved_floats(position(slot))) * size_of(type_);
}

void Cache::reserve(Slot& slot, std::int64_t tokens, std::int64_t kept) {
  check_capacity(tokens);
  if (tokens <= slot.capacity) return;
  const std::int64_t capacity = std::max({tokens, 2 * slot.capacity, std::int64_t{16}});
  const auto grown = [&](std::byte* old, std::int64_t dim) {
    const auto numbers =
        static_cast<std::size_t>(checked_size(Shape{shape_.heads, capacity, dim}, sizeof(float)));
    Memory memory = allocate_floats((numbers * size_of(type_) + 3) / sizeof(float) + kSlack);
    auto* const bytes = reinterpret_cast<std::byte*>(memory.get());
    for (std::int64_t h = 0; kept > 0 && h < shape_.heads; ++h)
      std::memcpy(tokens_at(bytes, capacity, dim, h).data, tokens_at(old, slot.capacity, dim, h).data,
                  bytes_of(kept, dim));
    return memory;
  };
  Memory keys = grown(slot.keys, shape_.head_dim);
  slot.own_values = grown(slot.values, shape_.value_dim);
  slot.own_keys = std::move(keys);
  slot.keys = reinterpret_cast<std::byte*>(slot.own_keys.get());
  slot.values = reinterpret_cast<std::byte*>(slot.own_values.get());
  slot.capacity = capacity;
}

void Cache::reset(std::int64_t slot) { at(slot).position = 0; }

void Cache::copy(std::int64_t slot, const State& source, std::int64_t source_slot) {
  const Cache& other = family_state<const Cache>(kOperation, "the source state", source);
  check_held_shape(kOperation, "a source state", other.shape_, shape_);
  if (other.type_ != type_)
    fail(kOperation, "expected a source state of {}, got one of {}", name_of(type_), name_of(other.type_));
  const Slot& from = other.at(source_slot);
  Slot& to = at(slot);
  if (&to == &from) return;
  reserve(to, from.position, 0);
  to.position = from.position;
  if (from.position == 0) return;  // neither need have memory
  for (std::int64_t h = 0; h < shape_.heads; ++h) {
    std::memcpy(tokens_at(to.keys, to.capacity, shape_.head_dim, h).data,
                tokens_at(from.keys, from.capacity, shape_.head_dim, h).data,
                bytes_of(from.position, shape_.head_dim));
    std::memcpy(tokens_at(to.values, to.capacity, shape_.value_dim, h).data,
                tokens_at(from.values, from.capacity, shape_.value_dim, h).data,
                bytes_of(from.position, shape_.value_dim));
  }
}

void Cache::save(std::int64_t slot, std::span<float> to) const {
  const Slot& from = at(slot);
  if (std::ssize(to) != saved_floats(from.position))
    fail(kOperation, "expected room for {} numbers, got {}", saved_floats(from.position), to.size());
  float* next = to.data();
  for (const auto& [memory, dim] :
       {std::pair(from.keys, shape_.head_dim), std::pair(from.values, shape_.value_dim)}) {
    for (std::int64_t h = 0; h < shape_.heads; ++h, next += from.position * dim)
      copy_rows(dense_rows(next, dim), tokens_at(memory, from.capacity, dim, h), from.position);
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
      copy_rows(tokens_at(memory, to.capacity, dim, h), dense_rows(next, dim), position);
  }
  to.position = position;
}

void Cache::append(std::int64_t slot, ConstFloatView key, ConstFloatView value) {
  Slot& to = at(slot);
  const std::int64_t count = key.extent(0);
  reserve(to, to.position + count, to.position);
  for (std::int64_t h = 0; h < shape_.heads; ++h) {
    copy_rows(tokens_at(to.keys, to.capacity, shape_.head_dim, h, to.position), rows_of(key, h), count);
    copy_rows(tokens_at(to.values, to.capacity, shape_.value_dim, h, to.position), rows_of(value, h), count);
  }
  to.position += count;
}

void Cache::erase(std::int64_t slot, std::int64_t first, std::int64_t count) {
  Slot& from = at(slot);
  const std::int64_t behind = from.position - first - count;
  for (const auto& [memory, dim] :
       {std::pair(from.keys, shape_.head_dim), std::pair(from.values, shape_.value_dim)}) {
    for (std::int64_t h = 0; h < shape_.heads; ++h) {
      std::byte* to = tokens_at(memory, from.capacity, dim, h, first).data;
      std::memmove(to, to + bytes_of(count, dim), bytes_of(behind, dim));
    }
  }
  from.position -= count;
}

KeyRange Cache::head(std::int64_t slot, std::int64_t h) const {
  const Slot& from = at(slot);
  KeyRange range;
  range.key = tokens_at(from.keys, from.capacity, shape_.head_dim, h);
  range.value = tokens_at(from.values, from.capacity, shape_.value_dim, h);
  range.count = from.position;
  return range;
}

}  // namespace linnet::softmax
