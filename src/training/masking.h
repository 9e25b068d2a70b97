#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace linnet {

/// Hides tokens of one sequence as in Devlin et al. 2019, section 3.1: of those that count (targets ≥ 0) 15 %
/// are chosen, at least one; `tokens` gets the mask token in 80 % of them, a random one in 10 % and keeps the
/// rest. Targets that are not chosen become −1. Both spans are [steps, fields]; field f has the tokens 0 …
/// sizes[f] − 1 and the mask token sizes[f], and is chosen independently of the others. Token i is decided by
/// (random, first + i) alone, and by whether it is the only one that is chosen.
void hide_tokens(std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                 std::span<const std::int64_t> sizes, const Random& random, std::uint64_t first);

/// Shifts all tokens but 0 of one sequence, and their targets, by the same random number of −most … most that
/// leaves those of field f in 1 … sizes[f] − 1. Spans as above; decided by (random, draw) and the tokens.
void transpose_tokens(std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                      std::span<const std::int64_t> sizes, std::int64_t most, const Random& random,
                      std::uint64_t draw);

}  // namespace linnet
