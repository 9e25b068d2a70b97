#include "data/reverse_task.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/fail.h"
#include "io/file.h"

namespace linnet {
namespace {

constexpr std::uint32_t letters_of_alphabet = 26;

}  // namespace

Pair draw_reversal(const Random& random, std::uint64_t index, std::int64_t letters) {
  const std::uint64_t first = index * static_cast<std::uint64_t>(letters);
  Pair pair;
  for (std::int64_t i = 0; i < letters; ++i) {
    const std::uint32_t drawn = random.bits(first + static_cast<std::uint64_t>(i));
    pair.source += static_cast<char>('a' + drawn % letters_of_alphabet);
  }
  pair.target.assign(pair.source.rbegin(), pair.source.rend());
  return pair;
}

Datasets open_reversals(const DataOptions& options, const Parts& parts) {
  constexpr std::int64_t most_letters = 1 << 20;
  const bool separate = options.source_length > 0;
  const std::int64_t letters = separate ? options.source_length : (options.length - 2) / 2;
  if (letters < 1 || letters > most_letters || (separate && options.length < letters + 1))
    fail<UsageError>("data",
                     "expected data.length of at least {} for reversed strings of {} letters, and at most {} "
                     "letters, got {}",
                     separate ? letters + 1 : 4, std::max<std::int64_t>(letters, 1), most_letters,
                     options.length);
  const auto draw = [&](std::int64_t count, std::uint32_t stream) {
    const Random random(static_cast<std::uint64_t>(options.seed), Draw::synthetic_data, stream);
    return pair_dataset(
        count,
        [random, letters](std::int64_t index) {
          return draw_reversal(random, static_cast<std::uint64_t>(index), letters);
        },
        options);
  };
  Datasets datasets;
  if (parts.training) datasets.training = draw(options.examples, 0);
  if (parts.validation) datasets.validation = draw(std::max<std::int64_t>(1, options.examples / 10), 1);
  return datasets;
}

void write_reversals(const std::filesystem::path& path, std::int64_t count, std::int64_t letters,
                     std::uint64_t seed) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
  if (count < 1 || letters < 1 || count > most_bytes / (2 * letters + 2))
    fail<UsageError>(
        "reverse", "expected at least 1 pair of at least 1 letter and at most {} bytes in all, got {} of {}",
        most_bytes, count, letters);
  // A stream of its own: no training and no validation example is among the pairs.
  const Random random(seed, Draw::synthetic_data, 2);
  std::string lines;
  for (std::int64_t i = 0; i < count; ++i) {
    const Pair pair = draw_reversal(random, static_cast<std::uint64_t>(i), letters);
    lines += pair.source + '\t' + pair.target + '\n';
  }
  write_file_atomically(path, lines);
}

}  // namespace linnet
