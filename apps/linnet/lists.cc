#include "lists.h"

#include <charconv>
#include <sstream>
#include <string_view>

#include "base/fail.h"
#include "checks.h"

namespace linnet {

std::vector<std::string> name_list(const std::string& option, const std::string& text,
                                   const char* operation) {
  std::vector<std::string> names;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) names.push_back(word);
  if (text.ends_with(',')) names.emplace_back();  // of which getline says nothing
  if (names.empty()) fail<UsageError>(operation, "expected {} to list at least one, got none", option);
  return names;
}

std::vector<std::string> known_list(const std::string& option, const std::string& text,
                                    const std::vector<std::string>& known, const char* operation) {
  std::vector<std::string> names = name_list(option, text, operation);
  for (const std::string& name : names) {
    const std::string problem = one_of(known).problem(name);
    if (!problem.empty()) fail<UsageError>(operation, "{}: {}", option, problem);
  }
  return names;
}

std::vector<std::int64_t> number_list(const std::string& option, const std::string& text,
                                      const char* operation) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const auto number = [&](std::string_view word) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < 1 || value > most)
      fail<UsageError>(
          operation,
          "expected {} to list whole numbers above 0 or doubling ranges (16,32,64 or 512:65536), got {}",
          option, text);
    return value;
  };
  std::vector<std::int64_t> values;
  for (const std::string& word : name_list(option, text, operation)) {
    const std::size_t colon = word.find(':');
    const std::int64_t first = number(std::string_view(word).substr(0, colon));
    const std::int64_t last =
        colon == std::string::npos ? first : number(std::string_view(word).substr(colon + 1));
    for (std::int64_t value = first; value <= last; value *= 2) values.push_back(value);
  }
  if (values.empty())
    fail<UsageError>(operation, "expected ranges of {} to begin below their end, got {}", option, text);
  return values;
}

}  // namespace linnet
