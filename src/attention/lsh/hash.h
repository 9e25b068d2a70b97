#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "linnet/attention.h"

namespace linnet::lsh {

/// Tokens that are hashed together, a lane a token.
inline constexpr std::size_t kTokens = 64;

/// Of a round.
inline constexpr std::int64_t kMostBuckets = 1 << 16;

/// Buckets of a round for inputs of `length` tokens: those of the options, or the default.
std::int64_t bucket_count(const LshOptions& options, std::int64_t length);

/// Columns of a round's R, over all of its hashes: Σ buckets of the hashes / 2, 0 for one bucket.
std::int64_t rotation_columns(std::int64_t buckets);

/// What the tokens of a call are told apart by.
struct Hashes {
  std::vector<std::uint32_t> buckets;  ///< [rounds, B, H, N], 0 for padding
  std::vector<float> inverse_norms;    ///< [B, H, N]: 1 / ‖q‖, 0 where ‖q‖ is 0 or for padding
};

/// Angular hashes h(x) = argmax([xR, −xR]) with a random R [E, buckets/2] (Andoni et al. 2015), drawn from
/// the seed, the layer, the round and the head. More than 32 buckets are the product of several hashes of at
/// most 32 where their number allows it, so that the default hash costs E log N. 2 N E `rotation_columns`
/// FLOPs a round and head.
Hashes hash_tokens(Context& context, const AttentionOptions& options, View<const float> query,
                   const Mask& mask);

}  // namespace linnet::lsh
