#pragma once

#include <cstdint>

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::linformer {

// The three products with a projection P [k, N]. Each runs on the calling thread for a block that shapes
// alone decide, with its sums in a fixed order; `own` is the thread's context.

/// Ranks that `compress` and `add_projection_gradient` take at a time, tokens that `expand` does.
inline constexpr std::int64_t kRanks = 128;
inline constexpr std::int64_t kTokens = 128;

/// compressed [ranks, D] = P [ranks, N] x [n, D] for at most kRanks ranks: the leading n columns of P.
/// 2 ranks n D FLOPs.
void compress(Context& own, View<float> compressed, View<const float> projection, View<const float> x);

/// x [n, D] = P[:, first … first + n)ᵀ compressed [k, D] for at most kTokens tokens.
void expand(Context& own, View<float> x, View<const float> projection, std::int64_t first,
            View<const float> compressed);

/// sums [ranks, kTokens], dense and 64-byte aligned, rows rounded up to a multiple of 8, += compressed
/// [ranks, D] x [n, D]ᵀ for at most kRanks ranks and kTokens tokens; columns from n on are left as they are.
void add_projection_gradient(Context& own, float* sums, View<const float> compressed, View<const float> x);

}  // namespace linnet::linformer
