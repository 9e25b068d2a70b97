#include "base/fail.h"

#include "base/names.h"

namespace linnet {

std::string error_message(const char* operation, std::string sentence) {
  constexpr std::size_t longest = 2000, part = 800;
  if (sentence.size() > longest) {
    const std::string_view whole = sentence;
    std::size_t end = whole.size() - part;
    while (end < whole.size() && is_utf8_continuation(whole[end])) ++end;
    sentence = fmt::format("{} {}", shortened(whole, part), whole.substr(end));
  }
  return fmt::format("[{}] {}", operation, sentence);
}

}  // namespace linnet
