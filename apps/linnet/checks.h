#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "command_line.h"
#include "linnet/context.h"

// Checks of single values on the command line, on the text itself: what does not fit is refused, never
// wrapped or cut.

namespace linnet {

inline constexpr std::int64_t most_threads = Context::most_threads;
inline constexpr std::int64_t most_count = 1 << 24;

/// A whole number in `least` … `most`.
Check whole(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// A whole number from 0 on that has at most 64 bits, as a seed of draws.
Check whole_of_64_bits();

/// A finite number in `least` … `most`, or above `least` where `beyond`.
Check number(double least, double most = std::numeric_limits<double>::max(), bool beyond = false);

/// One of these words.
Check one_of(std::vector<std::string> words);

}  // namespace linnet
