#pragma once

#include <vector>

#include "attention/softmax/cache.h"
#include "attention/sparse/strided_pattern.h"
#include "linnet/attention.h"

namespace linnet::sparse {

/// The keys and values of a stream that a later query of the strided family may see, in the order of their
/// tokens: all of them, or of the fixed pattern the last `summary` of every block behind and the current
/// block. A slot at position p holds p tokens, or ⌊p/s⌋ c + p mod s; `save` writes keys [H, held, E], then
/// values [H, held, M]. In memory a slot is a softmax::Cache of `held_at_most` tokens, which in the caller's
/// memory serves the first `capacity` tokens of a stream and throws Error behind them.
class StridedState final : public State {
 public:
  /// `memory` holds slots · softmax::Cache::slot_floats of `held_at_most` tokens, or is null: the state has
  /// its own then.
  StridedState(std::int64_t slots, const HeadShape& shape, std::int64_t capacity,
               const StridedPattern& pattern, float* memory = nullptr);

  /// Throws unless a slot can come to that position.
  void check_capacity(std::int64_t position) const;

  const HeadShape& shape() const { return cache_.shape(); }
  const StridedPattern& pattern() const { return pattern_; }

  std::int64_t slots() const override { return cache_.slots(); }
  std::int64_t position(std::int64_t slot) const override;
  std::int64_t saved_floats(std::int64_t position) const override {
    return cache_.saved_floats(pattern_.held_at(position));
  }
  std::size_t bytes(std::int64_t slot) const override { return cache_.bytes(slot); }
  std::int64_t gradient_floats(std::int64_t slot) const override { return cache_.gradient_floats(slot); }
  void reset(std::int64_t slot) override;
  void reserve(std::int64_t slot, std::int64_t tokens) override;
  void copy(std::int64_t slot, const State& source, std::int64_t source_slot) override;
  void save(std::int64_t slot, std::span<float> to) const override { cache_.save(slot, to); }
  void restore(std::int64_t slot, std::span<const float> from, std::int64_t position) override;

  /// Keys [count, H, E] and values [count, H, M] of the slot's next tokens, f32 or bf16.
  void append(std::int64_t slot, ConstFloatView key, ConstFloatView value);

  /// The same for one token, which may still see all of its block, until `forget` lets go of what no later
  /// query sees: of a block that is full all but its summary.
  void push(std::int64_t slot, ConstFloatView key, ConstFloatView value);
  void forget(std::int64_t slot);

  /// Tokens that the slot holds.
  std::int64_t held(std::int64_t slot) const { return cache_.position(slot); }

  const softmax::Cache& cache() const { return cache_; }
  float* scratch(std::int64_t slot) { return cache_.scratch(slot, 0); }

 private:
  StridedPattern pattern_;
  std::int64_t most_;  // positions
  softmax::Cache cache_;
  std::vector<std::int64_t> positions_;
};

}  // namespace linnet::sparse
