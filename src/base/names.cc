#include "base/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace linnet {
namespace {

// Optimal string alignment distance, O(|a| |b|).
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  std::size_t least = 0;
  for (const std::string& candidate : candidates) {
    // Lengths alone tell that it differs in too many letters; a name in a file may have millions.
    const std::size_t insertions =
        std::max(name.size(), candidate.size()) - std::min(name.size(), candidate.size());
    if (2 * insertions > candidate.size()) continue;
    const std::size_t distance = edits(name, candidate);
    if (best == nullptr || distance < least) {
      best = &candidate;
      least = distance;
    }
  }
  if (best == nullptr || 2 * least > best->size()) return {};
  return *best;
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && is_utf8_continuation(text[end])) --end;
  return fmt::format("{}… ({} bytes)", text.substr(0, end), text.size());
}

std::string in_small_letters(std::string_view text) {
  std::string result(text);
  for (char& letter : result) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return result;
}

}  // namespace linnet
