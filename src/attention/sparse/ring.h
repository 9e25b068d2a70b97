#pragma once

#include <vector>

#include "hwy/aligned_allocator.h"
#include "linnet/attention.h"

namespace linnet::sparse {

/// The last left + 1 keys and values of each stream, f32: a ring of constant memory, H·(left + 1)·(E + M)
/// floats a slot. In memory a slot holds keys [H, left + 1, E] and values [H, left + 1, M], token t at row t
/// mod (left + 1), so that a step reads both of a head in one piece; in the caller's memory the values follow
/// the keys, and softmax::kSlack floats follow both. `save` writes the tokens that are left, oldest first:
/// keys [H, held, E], then values [H, held, M].
class Ring final : public State {
 public:
  /// `memory` holds slots · `slot_floats`, or is null: the state has its own then.
  Ring(std::int64_t slots, const HeadShape& shape, std::int64_t left, float* memory = nullptr);

  static std::int64_t slot_floats(const HeadShape& shape, std::int64_t left);

  const HeadShape& shape() const { return shape_; }
  std::int64_t capacity() const { return capacity_; }

  std::int64_t slots() const override { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t position(std::int64_t slot) const override { return at(slot).position; }
  std::int64_t saved_floats(std::int64_t position) const override {
    return checked_size(
        Shape{std::min(position, capacity_), shape_.heads, shape_.head_dim + shape_.value_dim},
        sizeof(float));
  }
  std::size_t bytes(std::int64_t slot) const override;
  std::int64_t gradient_floats(std::int64_t slot) const override {
    return static_cast<std::int64_t>(bytes(slot) / sizeof(float));
  }
  void reset(std::int64_t slot) override;
  void reserve(std::int64_t slot, std::int64_t) override { position(slot); }  // checks it
  void copy(std::int64_t slot, const State& source, std::int64_t source_slot) override;
  void save(std::int64_t slot, std::span<float> to) const override;
  void restore(std::int64_t slot, std::span<const float> from, std::int64_t position) override;

  /// Tokens that the slot holds.
  std::int64_t held(std::int64_t slot) const { return std::min(position(slot), capacity_); }

  /// Keys [count, H, E] and values [count, H, M] of the slot's next tokens, f32 or bf16.
  void append(std::int64_t slot, ConstFloatView key, ConstFloatView value);

  /// Rows of the key and value that the slot holds since `age` tokens, 0 for the newest.
  const float* key(std::int64_t slot, std::int64_t age, std::int64_t h) const;
  const float* value(std::int64_t slot, std::int64_t age, std::int64_t h) const;

  /// A head's keys and values, `held` of them in any order, readable for 64 bytes past their end.
  const float* keys(std::int64_t slot, std::int64_t h) const;
  const float* values(std::int64_t slot, std::int64_t h) const;

  /// The slot's own memory for a step.
  float* scratch(std::int64_t slot) { return at(slot).scratch.get(); }

 private:
  using Memory = hwy::AlignedFreeUniquePtr<float[]>;

  struct Slot {
    std::int64_t position = 0;
    float *keys = nullptr, *values = nullptr;
    Memory own_keys, own_values, scratch;
  };

  Slot& at(std::int64_t slot) { return slots_[index(slot)]; }
  const Slot& at(std::int64_t slot) const { return slots_[index(slot)]; }
  std::size_t index(std::int64_t slot) const;

  HeadShape shape_;
  std::int64_t capacity_;
  std::vector<Slot> slots_;
};

}  // namespace linnet::sparse
