#pragma once

#include <cstdint>
#include <vector>

#include "attention/arguments.h"

namespace linnet::lsh {

/// Who meets whom in one call: the tokens of every round in the order of (bucket, position), which depends on
/// the queries alone. O(rounds · N) memory.
class Plan {
 public:
  Plan(Context& context, const AttentionOptions& options, View<const float> query, const Mask& mask);

  /// Tokens of batch entry b that are no padding.
  std::int64_t tokens(std::int64_t b) const { return tokens_[static_cast<std::size_t>(b)]; }
  std::int64_t chunk() const { return chunk_; }

  /// Consecutive sorted tokens that one task takes as queries: whole chunks.
  std::int64_t block() const { return block_; }
  std::int64_t blocks() const { return blocks_; }

  /// The positions of a round's sorted tokens.
  const std::int64_t* order(std::int64_t round, std::int64_t b, std::int64_t h) const {
    return order_.data() + at(round, b, h);
  }

  /// 1 / ‖q‖ of a token, 0 where ‖q‖ is 0.
  float inverse_norm(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return inverse_norm_[static_cast<std::size_t>(at(0, b, h) + i)];
  }

  /// Whether the token sees no other one in any round.
  bool alone(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return alone_[static_cast<std::size_t>(at(0, b, h) + i)] != 0;
  }

  /// What a block of sorted tokens sees: keys [first_key, end) of the sorted ones, and each of its queries
  /// the intervals `before` and `behind` of them, counted from first_key; `behind` is empty under a causal
  /// mask. Neither bound of either decreases.
  struct Block {
    std::int64_t first = 0, end = 0, first_key = 0;
    std::vector<Mask::Interval> before, behind;
  };
  Block look(std::int64_t round, std::int64_t b, std::int64_t h, std::int64_t block) const;

 private:
  std::int64_t at(std::int64_t round, std::int64_t b, std::int64_t h) const {
    return ((round * batch_ + b) * heads_ + h) * length_;
  }
  void sort(std::int64_t round, std::int64_t b, std::int64_t h, std::int64_t buckets);
  void find_alone(std::int64_t b, std::int64_t h, std::int64_t rounds);

  std::int64_t batch_, length_, heads_, chunk_, block_, blocks_;
  bool causal_;
  std::vector<std::int64_t> tokens_;    // [B]
  std::vector<std::uint32_t> buckets_;  // [rounds, B, H, N], by position
  std::vector<std::int64_t> order_;     // the same
  std::vector<float> inverse_norm_;     // [B, H, N]
  std::vector<std::uint8_t> alone_;     // [B, H, N]
};

}  // namespace linnet::lsh
