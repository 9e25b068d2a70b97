#include "training/masking.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace linnet {
namespace {

/// 2^32 times a share.
constexpr std::uint32_t of_words(double share) { return static_cast<std::uint32_t>(share * 4294967296.0); }

constexpr std::uint32_t chosen = of_words(0.15);
constexpr std::uint32_t masked = of_words(0.8);
constexpr std::uint32_t replaced = of_words(0.9);

}  // namespace

void hide_tokens(std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                 std::span<const std::int64_t> sizes, const Random& random, std::uint64_t first) {
  assert(tokens.size() == targets.size());
  const auto words_of = [&](std::size_t i) { return random.block(first + i); };
  // Where the threshold finds none, the smallest word is the one that a higher one would have found.
  std::uint32_t least = ~0u;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (targets[i] >= 0) least = std::min(least, words_of(i)[0]);
  const std::uint32_t most = std::max(least, chosen - 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (targets[i] < 0) continue;
    const std::array<std::uint32_t, 4> words = words_of(i);
    const auto values = static_cast<std::uint64_t>(sizes[i % sizes.size()]);
    if (words[0] > most)
      targets[i] = -1;
    else if (words[1] < masked)
      tokens[i] = static_cast<std::int32_t>(values);
    else if (words[1] < replaced)
      tokens[i] = static_cast<std::int32_t>(words[2] * values >> 32);
  }
}

void transpose_tokens(std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                      std::span<const std::int64_t> sizes, std::int64_t most, const Random& random,
                      std::uint64_t draw) {
  assert(tokens.size() == targets.size());
  std::int64_t down = most, up = most;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] <= 0) continue;
    down = std::min(down, std::int64_t{tokens[i]} - 1);
    up = std::min(up, sizes[i % sizes.size()] - 1 - tokens[i]);
  }
  const auto choices = static_cast<std::uint64_t>(down + up + 1);
  const std::int64_t shift = static_cast<std::int64_t>(random.block(draw)[0] * choices >> 32) - down;
  for (const std::span<std::int32_t> all : {tokens, targets})
    for (std::int32_t& token : all)
      if (token > 0) token += static_cast<std::int32_t>(shift);
}

}  // namespace linnet
