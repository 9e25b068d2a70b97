#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/arguments.h"
#include "attention/lsh/hash.h"

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
  Mask::Interval queries(std::int64_t b, std::int64_t block) const {
    return {std::min(block * block_, tokens(b)), std::min((block + 1) * block_, tokens(b))};
  }

  /// The positions of a round's sorted tokens.
  const std::int64_t* order(std::int64_t round, std::int64_t b, std::int64_t h) const {
    return order_.data() + at(round, b, h);
  }

  /// 1 / ‖q‖ of a token, 0 where ‖q‖ is 0.
  float inverse_norm(std::int64_t b, std::int64_t i, std::int64_t h) const {
    return inverse_norms_[static_cast<std::size_t>(at(0, b, h) + i)];
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

  /// The neighbourhoods of tokens by position: i sees j in a round, as far as causality lets it and i ≠ j,
  /// where neighbourhood(i) − neighbourhood(j) is 0 or 1.
  const std::uint32_t* neighbourhoods(std::int64_t round, std::int64_t b, std::int64_t h) const {
    return neighbourhoods_.data() + at(round, b, h);
  }

 private:
  Plan(Context& context, const AttentionOptions& options, View<const float> query, const Mask& mask,
       Hashes hashes);
  std::int64_t at(std::int64_t round, std::int64_t b, std::int64_t h) const {
    return ((round * batch_ + b) * heads_ + h) * length_;
  }
  void sort(std::int64_t round, std::int64_t b, std::int64_t h, std::int64_t buckets);
  void find_alone(std::int64_t b, std::int64_t h, std::int64_t rounds);

  std::int64_t batch_, length_, heads_, chunk_, block_, blocks_;
  bool causal_;
  std::vector<std::int64_t> tokens_;           // [B]
  std::vector<std::uint32_t> neighbourhoods_;  // [rounds, B, H, N], by position; until `sort` the buckets
  std::vector<std::int64_t> order_;            // the same
  std::vector<float> inverse_norms_;           // [B, H, N]
  std::vector<std::uint8_t> alone_;            // [B, H, N]
};

/// Which pairs of a block meet for the first time: those of earlier rounds are left out, so that a key counts
/// once however many rounds it is met in. O(pairs · rounds) time, a comparison of whole numbers each.
class FirstMeetings {
 public:
  FirstMeetings(const Plan& plan, std::int64_t round, std::int64_t b, std::int64_t h,
                const Plan::Block& block);

  /// Whether there are earlier rounds.
  bool any() const { return rounds_ > 0; }

  /// The pairs of the block's queries and keys that `intervals`, one for each query, allow. The mask refers
  /// to both.
  Mask within(const std::vector<Mask::Interval>& intervals) const;

 private:
  void fill(View<std::uint8_t> tile, std::int64_t first_query, std::int64_t first_key,
            const std::vector<Mask::Interval>& intervals) const;

  std::int64_t rounds_, queries_, keys_;
  std::vector<std::uint32_t> of_queries_, of_keys_;  // neighbourhoods, [rounds, queries] and [rounds, keys]
};

}  // namespace linnet::lsh
