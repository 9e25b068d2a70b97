#include "stop_texts.h"

#include <algorithm>
#include <utility>

namespace linnet {
namespace {

/// Bytes at the end of `text` that `word` begins with, fewer than it has.
std::size_t begun_at_end(std::string_view text, std::string_view word) {
  for (std::size_t size = std::min(text.size(), word.size() - 1); size > 0; --size)
    if (text.ends_with(word.substr(0, size))) return size;
  return 0;
}

}  // namespace

std::string StopTexts::add(std::string_view added) {
  if (found_) return {};
  held_ += added;
  std::size_t end = std::string::npos, begun = 0;
  for (const std::string& word : *words_) {
    end = std::min(end, held_.find(word));
    begun = std::max(begun, begun_at_end(held_, word));
  }
  found_ = end != std::string::npos;
  std::string certain = held_.substr(0, found_ ? end : held_.size() - begun);
  held_.erase(0, found_ ? held_.size() : certain.size());
  return certain;
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace linnet
