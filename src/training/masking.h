#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace linnet {

/// Hides tokens of one example as in Devlin et al. 2019, section 3.1: of those that count (targets ≥ 0) 15 %
/// are chosen, at least one; `tokens` gets the mask token in 80 % of them, a random one of 0 … vocabulary − 1
/// in 10 % and keeps the rest. Targets that are not chosen become −1. Decided by (random, example, position)
/// alone.
void hide_tokens(std::span<std::int32_t> tokens, std::span<std::int32_t> targets, std::int64_t vocabulary,
                 std::int32_t mask_token, const Random& random, std::uint64_t example);

}  // namespace linnet
