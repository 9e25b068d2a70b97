#pragma once

#include <vector>

#include "attention/softmax/tiles.h"
#include "hwy/aligned_allocator.h"
#include "linnet/attention.h"

namespace linnet::softmax {

/// The key-value cache: every key and value of a stream, f32 or bf16. In memory a slot holds keys
/// [H, capacity, E] and values [H, capacity, M], so that a step streams both of a head; the capacity doubles
/// when it is full. In the caller's memory the two lie one behind the other, with kSlack floats behind them,
/// and the capacity stays what it is: a call that needs a larger one throws Error and leaves the slot as it
/// was. `save` writes the tokens only, as f32: keys [H, position, E], then values [H, position, M].
class Cache final : public State {
 public:
  /// `memory` holds slots · `slot_floats`, or is null: the state has its own then.
  Cache(std::int64_t slots, const HeadShape& shape, std::int64_t capacity, float* memory = nullptr,
        DType type = DType::f32);

  static std::int64_t slot_floats(const HeadShape& shape, std::int64_t capacity, DType type = DType::f32);

  /// Throws unless a slot can hold that many tokens.
  void check_capacity(std::int64_t tokens) const;

  const HeadShape& shape() const { return shape_; }

  std::int64_t slots() const override { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t position(std::int64_t slot) const override { return at(slot).position; }
  std::int64_t saved_floats(std::int64_t position) const override {
    return checked_size(Shape{position, shape_.heads, shape_.head_dim + shape_.value_dim}, sizeof(float));
  }
  std::size_t bytes(std::int64_t slot) const override;
  std::int64_t gradient_floats(std::int64_t slot) const override { return saved_floats(position(slot)); }
  void reset(std::int64_t slot) override;
  void reserve(std::int64_t slot, std::int64_t tokens) override { reserve(at(slot), tokens, position(slot)); }
  void copy(std::int64_t slot, const State& source, std::int64_t source_slot) override;
  void save(std::int64_t slot, std::span<float> to) const override;
  void restore(std::int64_t slot, std::span<const float> from, std::int64_t position) override;

  /// Keys [count, H, E] and values [count, H, M] of the slot's next tokens, f32 or bf16; strides of tokens
  /// and heads are free.
  void append(std::int64_t slot, ConstFloatView key, ConstFloatView value);

  /// Forgets `count` tokens from token `first` on, as if they had never been; those behind move up.
  void erase(std::int64_t slot, std::int64_t first, std::int64_t count);

  /// A head's keys and values, dense, readable for 64 bytes past their end.
  KeyRange head(std::int64_t slot, std::int64_t h) const;

  /// A head's own memory for a step.
  float* scratch(std::int64_t slot, std::int64_t head) { return at(slot).scratch.get() + head * scratch_; }

 private:
  using Memory = hwy::AlignedFreeUniquePtr<float[]>;

  struct Slot {
    std::int64_t position = 0, capacity = 0;
    std::byte *keys = nullptr, *values = nullptr;  // [H, capacity, E] and [H, capacity, M]
    Memory own_keys, own_values, scratch;
  };

  Slot& at(std::int64_t slot) { return slots_[index(slot)]; }
  const Slot& at(std::int64_t slot) const { return slots_[index(slot)]; }
  std::size_t index(std::int64_t slot) const;
  /// The first `kept` tokens of the slot stay. Nothing changes where it throws.
  void reserve(Slot& slot, std::int64_t tokens, std::int64_t kept);

  /// The tokens of head h in memory [H, capacity, dim] of ours, from token `first` on.
  OutputRows tokens_at(std::byte* memory, std::int64_t capacity, std::int64_t dim, std::int64_t h,
                       std::int64_t first = 0) const {
    return OutputRows{memory, dim, dim, type_}.from(h * capacity + first);
  }
  std::size_t bytes_of(std::int64_t count, std::int64_t dim) const {
    return static_cast<std::size_t>(count * dim) * size_of(type_);
  }

  DType type_;
  HeadShape shape_;
  std::int64_t scratch_;   // floats of a head
  std::int64_t most_ = 0;  // tokens of a slot, where the caller owns the memory
  bool of_caller_;
  std::vector<Slot> slots_;
};

/// A head's rows are read in whole vectors: 64 bytes behind the last one must be memory of ours.
inline constexpr std::int64_t kSlack = 16;

/// Memory for that many floats, aligned to 64 bytes, not set. Throws std::bad_alloc.
hwy::AlignedFreeUniquePtr<float[]> allocate_floats(std::size_t count);

}  // namespace linnet::softmax
