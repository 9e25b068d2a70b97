#include "data/sources.h"

#include <algorithm>
#include <system_error>

namespace linnet {

std::vector<std::string> comma_separated(std::string_view list) {
  constexpr const char* blank = " \t";
  std::vector<std::string> parts;
  for (std::size_t begin = 0; !list.empty() && begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view part = list.substr(begin, end - begin);
    const std::size_t first = std::min(part.find_first_not_of(blank), part.size());
    parts.emplace_back(part.substr(first, part.find_last_not_of(blank) + 1 - first));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::filesystem::path> files_of(const std::string& list) {
  std::error_code ignored;
  if (std::filesystem::exists(list, ignored)) return {list};
  const std::vector<std::string> parts = comma_separated(list);
  return {parts.begin(), parts.end()};
}

}  // namespace linnet
