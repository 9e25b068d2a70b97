#pragma once

#include <cstdint>
#include <filesystem>

#include "data/pairs.h"

namespace linnet {

/// Pair `index` of the reversal task: a random string of letters a … z, and the same string backwards. Every
/// fourth string, those whose index is 3, 7, 11 …, has 1 … `longest` letters, the others have `longest`.
/// Decided by (random, index) alone.
Pair draw_reversal(const Random& random, std::uint64_t index, std::int64_t longest);

/// The kind "reverse" of open_datasets. Strings have up to data.source_length letters, or as many as pairs of
/// one sequence with data.length tokens can have.
Datasets open_reversals(const DataOptions& options, const Parts& parts);

/// Writes `count` pairs of strings of exactly `letters` letters as lines source<tab>target.
void write_reversals(const std::filesystem::path& path, std::int64_t count, std::int64_t letters,
                     std::uint64_t seed);

}  // namespace linnet
