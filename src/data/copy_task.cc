#include "data/copy_task.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "io/safetensors.h"

namespace linnet {

void draw_copy(std::span<std::int32_t> tokens, std::span<std::int32_t> targets, const Random& random,
               std::uint64_t index) {
  const std::size_t length = tokens.size();
  assert(length >= 4 && targets.size() == length);
  constexpr std::uint64_t symbols = copy_vocabulary - 1;
  // Every example owns as many random numbers as it has tokens.
  const std::uint64_t first = index * length;
  const std::size_t word = 1 + random.below(length / 2 - 1, first);
  std::ranges::fill(tokens, 0);
  std::ranges::fill(targets, -1);
  for (std::size_t i = 0; i < word; ++i) {
    const std::int32_t symbol = 1 + static_cast<std::int32_t>(random.below(symbols, first + 1 + i));
    tokens[1 + i] = symbol;
    tokens[2 + word + i] = symbol;
    targets[2 + word + i] = symbol;
  }
}

void write_copy(const std::filesystem::path& path, std::int64_t count, std::int64_t length,
                std::uint64_t seed) {
  constexpr std::int64_t most_tokens = std::int64_t{1} << 28;
  if (count < 1 || length < 4 || count > most_tokens / length)
    fail<UsageError>(
        "copy", "expected at least 1 example of at least 4 tokens and at most {} tokens in all, got {} of {}",
        most_tokens, count, length);
  require_memory("the sequences", 2.0 * sizeof(std::int32_t) * static_cast<double>(count * length));
  const Random random(seed, Draw::synthetic_data);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count * length)), targets(tokens.size());
  const std::size_t row = static_cast<std::size_t>(length);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    draw_copy(std::span(tokens).subspan(i * row, row), std::span(targets).subspan(i * row, row), random, i);
  const std::vector<NamedTensor> tensors = {{"tokens", DType::i32, {count, length}, tokens.data()},
                                            {"targets", DType::i32, {count, length}, targets.data()}};
  write_safetensors(path, tensors, {});
}

}  // namespace linnet
