#pragma once

#include <cstddef>
#include <cstdint>

#include "linnet/tensor.h"

namespace linnet::linformer {

// The three products with a projection P [k, N]. Each runs on the calling thread for a block that shapes
// alone decide, with its sums in a fixed order. `scratch` holds as many floats as the function beside says,
// aligned to 64 bytes.

/// Ranks that `compress` and `add_projection_gradient` take at a time, tokens that `expand` does.
inline constexpr std::int64_t kRanks = 128;
inline constexpr std::int64_t kTokens = 128;

/// compressed [ranks, D] = P [ranks, N] x [n, D] for at most kRanks ranks: the leading n columns of P.
/// 2 ranks n D FLOPs.
void compress(View<float> compressed, View<const float> projection, View<const float> x, float* scratch);
std::size_t compress_scratch(std::int64_t dim);

/// x [n, D] = P[:, first … first + n)ᵀ compressed [k, D] for at most kTokens tokens.
void expand(View<float> x, View<const float> projection, std::int64_t first, View<const float> compressed,
            float* scratch);
std::size_t expand_scratch(std::int64_t dim);

/// sums [ranks, kTokens], dense and 64-byte aligned, rows rounded up to a multiple of 8, += compressed
/// [ranks, D] x [n, D]ᵀ for at most kRanks ranks and kTokens tokens; columns from n on are left as they are.
void add_projection_gradient(float* sums, View<const float> compressed, View<const float> x, float* scratch);
std::size_t projection_gradient_scratch(std::int64_t dim);

}  // namespace linnet::linformer
