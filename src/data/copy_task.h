#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/random.h"

namespace linnet {

/// Tokens of the copy task: 0 separates and pads, 1 … 10 are the symbols of words.
inline constexpr std::int64_t copy_vocabulary = 11;

/// One example of the copy task (Katharopoulos et al., 2020, section 4.1): `0 w 0 w`, padded with 0 to the
/// length of the spans, w a random word of 1 … length/2 - 1 symbols; only its second copy counts (targets are
/// -1 elsewhere). Decided by (random, index) alone. Length at least 4.
void draw_copy(std::span<std::int32_t> tokens, std::span<std::int32_t> targets, const Random& random,
               std::uint64_t index);

/// Writes `count` examples as a safetensors file: I32 `tokens` and `targets`, [count, length].
void write_copy(const std::filesystem::path& path, std::int64_t count, std::int64_t length,
                std::uint64_t seed);

}  // namespace linnet
