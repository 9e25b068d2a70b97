#pragma once

#include <cstdint>
#include <filesystem>

#include "data/pairs.h"

namespace linnet {

/// Pair `index` of the reversal task: a random string of `letters` letters a … z, and the same string
/// backwards. Decided by (random, index) alone.
Pair draw_reversal(const Random& random, std::uint64_t index, std::int64_t letters);

/// The kind "reverse" of open_datasets. Strings have data.source_length letters, or as many as pairs of one
/// sequence with data.length tokens can have.
Datasets open_reversals(const DataOptions& options, const Parts& parts);

/// Writes `count` pairs of such strings as lines source<tab>target.
void write_reversals(const std::filesystem::path& path, std::int64_t count, std::int64_t letters,
                     std::uint64_t seed);

}  // namespace linnet
