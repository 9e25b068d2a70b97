#pragma once

#include <vector>

#include "attention/arguments.h"

namespace linnet {

/// A log-scale as the two floats whose sum it is; of one that no float holds the second is 0.
void write_scale(float* floats, double scale);

/// The state of linear attention. A slot's numbers, as `save` writes them: S [H, F, M], then z [H, F], f32,
/// with S = Σ φ(k) vᵀ and z = Σ φ(k) over the tokens seen; with compensated sums a second part follows, laid
/// out alike: what the sums have rounded off so far and is still to be subtracted from them. With a
/// log-scaled map the sums stand for e^M times their numbers; each head's M follows as two floats whose sum
/// it is. Slots lie one after another in the caller's memory, 64-byte aligned in memory of the state's own.
class LinearState final : public State {
 public:
  /// `memory` holds slots · `slot_floats`, or is null: the state has its own then.
  LinearState(std::int64_t slots, const HeadShape& shape, std::int64_t features, StateSums sums, bool scaled,
              float* memory = nullptr);

  static std::int64_t slot_floats(const HeadShape& shape, std::int64_t features, StateSums sums, bool scaled);

  std::int64_t slots() const override { return static_cast<std::int64_t>(positions_.size()); }
  std::int64_t position(std::int64_t slot) const override;
  std::int64_t saved_floats(std::int64_t) const override { return saved(); }
  std::size_t bytes(std::int64_t slot) const override;
  std::int64_t gradient_floats(std::int64_t slot) const override;
  void reset(std::int64_t slot) override;
  void reserve(std::int64_t slot, std::int64_t) override { position(slot); }  // checks it
  void copy(std::int64_t slot, const State& source, std::int64_t source_slot) override;
  void save(std::int64_t slot, std::span<float> to) const override;
  void restore(std::int64_t slot, std::span<const float> from, std::int64_t position) override;

  const HeadShape& shape() const { return shape_; }
  std::int64_t features() const { return features_; }

  /// 1, or 2 with compensated sums.
  int parts() const { return parts_; }

  /// S [F, M] and z [F] of a head; part 1 is what they rounded off.
  float* sums(std::int64_t slot, std::int64_t head, int part) {
    return at(slot) + part * numbers_ + head * features_ * shape_.value_dim;
  }
  const float* sums(std::int64_t slot, std::int64_t head, int part) const {
    return const_cast<LinearState*>(this)->sums(slot, head, part);
  }
  float* key_sum(std::int64_t slot, std::int64_t head, int part) {
    return at(slot) + part * numbers_ + features_ * (shape_.heads * shape_.value_dim + head);
  }
  const float* key_sum(std::int64_t slot, std::int64_t head, int part) const {
    return const_cast<LinearState*>(this)->key_sum(slot, head, part);
  }

  /// M, the log-scale of a head's sums: −∞ before the first token, 0 always where the map has none. Kept as
  /// far as two floats hold it.
  double scale(std::int64_t slot, std::int64_t head) const;
  void set_scale(std::int64_t slot, std::int64_t head, double scale);
  bool scaled() const { return scales_ != 0; }

  /// Room for what a token's queries and keys become, so that a step allocates nothing: [H, F] and [H].
  struct Features {
    View<float> query, key;
    double *query_scale, *key_scale;
  };
  Features features_of(std::int64_t slot);

  void set_position(std::int64_t slot, std::int64_t position) { positions_[slot] = position; }

 private:
  std::int64_t saved() const { return parts_ * numbers_ + scales_; }
  float* scale_floats(std::int64_t slot, std::int64_t head) {
    return at(slot) + parts_ * numbers_ + 2 * head;
  }
  float* at(std::int64_t slot) { return slots_ + slot * stride_; }
  const float* at(std::int64_t slot) const { return slots_ + slot * stride_; }

  HeadShape shape_;
  std::int64_t features_;
  int parts_;
  std::int64_t numbers_;  // of a part of a slot: H (F M + F)
  std::int64_t scales_;   // floats of a slot's log-scales, behind its parts
  std::int64_t stride_;   // from slot to slot
  Tensor memory_;         // empty where the caller owns the slots
  float* slots_;
  std::int64_t token_stride_;         // from slot to slot of `token_`
  Tensor token_;                      // features of a token's queries and keys
  std::vector<double> token_scales_;  // of the heads' queries and keys, where the map has log-scales
  std::vector<std::int64_t> positions_;
};

}  // namespace linnet
