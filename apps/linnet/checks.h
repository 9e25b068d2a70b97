#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "linnet/context.h"

// Checks of single values on the command line, on the text itself: what does not fit is refused, never
// wrapped or cut.

namespace linnet {

inline constexpr std::int64_t most_threads = Context::most_threads;
inline constexpr std::int64_t most_count = 1 << 24;

/// A whole number in `least` … `most`.
inline CLI::Validator whole(std::int64_t least,
                            std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        std::int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= least && value <= most) return {};
        return most == std::numeric_limits<std::int64_t>::max()
                   ? fmt::format("expected a whole number of at least {}, got {}", least, text)
                   : fmt::format("expected a whole number in {} … {}, got {}", least, most, text);
      },
      "");
}

/// A finite number in `least` … `most`, or above `least` where `beyond`.
inline CLI::Validator number(double least, double most = std::numeric_limits<double>::max(),
                             bool beyond = false) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        double value = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && std::isfinite(value) && value <= most &&
            (beyond ? value > least : value >= least))
          return {};
        const std::string range = fmt::format("{} {}", beyond ? "above" : "of at least", least);
        return most == std::numeric_limits<double>::max()
                   ? fmt::format("expected a number {}, got {}", range, text)
                   : fmt::format("expected a number {} and at most {}, got {}", range, most, text);
      },
      "");
}

/// One of these words. The check's name holds them, for the shells' completions.
inline CLI::Validator one_of(std::vector<std::string> words) {
  std::string name = fmt::format("{}", fmt::join(words, " "));
  return CLI::Validator(
      [words = std::move(words)](const std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) return {};
        return fmt::format("expected {}, got {}", fmt::join(words, " or "), text);
      },
      "", std::move(name));
}

}  // namespace linnet
