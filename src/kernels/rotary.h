#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// Largest head size d that the rotations below take.
inline constexpr std::int64_t most_rotary_dim = 1024;

/// The frequencies of rotary positions (Su et al. 2021, equation 15) for heads of d numbers, d even: element
/// j of d/2 is 10000^(−2j/d) / 2π turns per position, in units of 2^-64 turns. Whole turns vanish in the
/// products of such integers, so that no position is too large.
std::vector<std::uint64_t> rotary_frequencies(std::int64_t d);

/// Which way to turn: by the angle of the position, or back, which is the backward of it.
enum class Turn { by_position, back };

/// Rotates the pair (x_j, x_{j + d/2}) of every row by the angle p · 10000^(−2j/d), in place. p is the
/// position of the row (Su et al. 2021, equation 34, whose pairs are (x_2j, x_{2j+1}): the same up to the
/// order of the columns). Angles are exact to 10^-6 up to position 2^40. A row depends on itself and its
/// position alone, bit for bit.
///
/// x [batch, length, heads, d], d ≤ most_rotary_dim, outer strides free; token i of every entry stands at
/// position first + i.
void rotate(Context& context, View<float> x, std::int64_t first, std::span<const std::uint64_t> frequencies,
            Turn turn = Turn::by_position);

/// The same for x [n, heads, d] whose row i stands at positions[i]. Allocates nothing.
void rotate_rows(Context& context, View<float> x, std::span<const std::int64_t> positions,
                 std::span<const std::uint64_t> frequencies, Turn turn = Turn::by_position);

}  // namespace linnet::kernels
