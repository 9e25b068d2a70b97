#include "token_text.h"

#include <algorithm>
#include <sstream>

#include "base/fail.h"

namespace linnet {
namespace {

/// A few tokens before decide how one is written: the blank of a word, the bytes of a character.
constexpr std::size_t context_tokens = 32;

}  // namespace

TokenText::TokenText(const Model& model)
    : bytes_(model.config().vocabulary == 256), vocabulary_(model.config().vocabulary) {
  if (model.assets().tokenizer.empty()) return;
  tokenizer_.emplace(model.assets().tokenizer, "the model's tokenizer.model");
  if (tokenizer_->vocabulary() != vocabulary_)
    fail<UsageError>("tokenizer",
                     "expected a tokenizer of the model's {} tokens, got one of {}, which does not match it",
                     vocabulary_, tokenizer_->vocabulary());
}

std::vector<std::int32_t> TokenText::tokens(const std::string& prompt) const {
  if (tokenizer_) return tokenizer_->encode(prompt);
  std::vector<std::int32_t> result;
  if (bytes_) {
    for (const char c : prompt) result.push_back(static_cast<unsigned char>(c));
    return result;
  }
  std::istringstream words(prompt);
  std::string word;
  while (words >> word) {
    std::size_t used = 0;
    int value = -1;
    try {
      value = std::stoi(word, &used);
    } catch (const std::exception&) {
    }
    if (used != word.size() || value < 0 || value >= vocabulary_)
      fail<UsageError>("prompt", "expected tokens in 0 … {}, got {}", vocabulary_ - 1, word);
    result.push_back(value);
  }
  return result;
}

std::string TokenText::added(std::span<const std::int32_t> tokens, std::size_t first) const {
  if (tokenizer_) {
    const std::size_t before_first = std::min(first, context_tokens);
    const std::span<const std::int32_t> known = tokens.subspan(first - before_first);
    const std::string before = tokenizer_->decode(known.first(before_first));
    const std::string all = tokenizer_->decode(known);
    return all.substr(std::min(before.size(), all.size()));
  }
  std::string text;
  for (const std::int32_t token : tokens.subspan(first))
    text += bytes_ ? std::string(1, static_cast<char>(token)) : fmt::format("{} ", token);
  return text;
}

std::size_t TokenText::settled(std::string_view text) const {
  constexpr std::string_view unknown = "\uFFFD";
  constexpr int most_bytes = 3;  // of a character that is not whole
  if (!tokenizer_) return text.size();
  for (int i = 0; i < most_bytes && text.ends_with(unknown); ++i) text.remove_suffix(unknown.size());
  return text.size();
}

std::vector<std::int32_t> TokenText::context(std::span<const std::int32_t> tokens) const {
  if (!tokenizer_) return {};
  const auto last = tokens.last(std::min(tokens.size(), context_tokens));
  return {last.begin(), last.end()};
}

}  // namespace linnet
