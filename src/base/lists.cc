#include "base/lists.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace linnet {

std::string_view without_blanks(std::string_view text, const char* blanks) {
  const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::vector<std::string> comma_separated(std::string_view list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; !list.empty() && begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.emplace_back(without_blanks(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

namespace {

template <class Number>
std::optional<std::vector<Number>> parsed(std::string_view list, Number least, Number most) {
  std::vector<Number> result;
  for (const std::string& part : comma_separated(list)) {
    Number number = 0;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, number);
    if (error != std::errc() || stop != end || !(number >= least && number <= most)) return std::nullopt;
    result.push_back(number);
  }
  return result;
}

}  // namespace

std::optional<std::vector<std::int64_t>> whole_numbers(std::string_view list, std::int64_t least,
                                                       std::int64_t most) {
  return parsed(list, least, most);
}

std::optional<std::vector<double>> numbers(std::string_view list, double least, double most) {
  return parsed(list, least, most);
}

}  // namespace linnet
