#include "checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace linnet {

Check whole(std::int64_t least, std::int64_t most) {
  return {[=](const std::string& text) -> std::string {
            std::int64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            if (error == std::errc() && stop == end && value >= least && value <= most) return {};
            return most == std::numeric_limits<std::int64_t>::max() && error != std::errc::result_out_of_range
                       ? fmt::format("expected a whole number of at least {}, got {}", least, text)
                       : fmt::format("expected a whole number in {} … {}, got {}", least, most, text);
          },
          {}};
}

Check whole_of_64_bits() {
  return {[](const std::string& text) -> std::string {
            std::uint64_t value = 0;
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, value);
            if (error == std::errc() && stop == end) return {};
            return fmt::format("expected a whole number in 0 … {}, got {}",
                               std::numeric_limits<std::uint64_t>::max(), text);
          },
          {}};
}

Check number(double least, double most, bool beyond) {
  return {[=](const std::string& text) -> std::string {
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
          {}};
}

Check one_of(std::vector<std::string> words) {
  const auto problem = [words](const std::string& text) -> std::string {
    if (std::ranges::find(words, text) != words.end()) return {};
    return fmt::format("expected {}, got {}", fmt::join(words, " or "), text);
  };
  return {problem, std::move(words)};
}

}  // namespace linnet
