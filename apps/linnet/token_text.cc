#include "token_text.h"

#include <sstream>
#include <string_view>

#include "base/fail.h"
#include "data/fasta.h"

namespace linnet {

TokenText::TokenText(const Model& model, bool residues)
    : TokenText(model.assets().tokenizer, model.config().vocabulary, residues) {}

TokenText::TokenText(const std::string& tokenizer, std::int64_t vocabulary, bool residues)
    : residues_(residues), vocabulary_(vocabulary) {
  constexpr std::int64_t bytes = 256;
  if (!tokenizer.empty() || vocabulary_ == bytes) tokenizer_.emplace(tokenizer, vocabulary_);
}

std::vector<std::int32_t> TokenText::tokens(const std::string& prompt) const {
  if (tokenizer_) return tokenizer_->encode(prompt);
  std::vector<std::int32_t> result;
  if (residues_) {
    for (const char letter : prompt) {
      if (std::string_view(" \t\r\n").find(letter) != std::string_view::npos) continue;
      result.push_back(residue_of(letter));
      if (result.back() < 0)
        fail<UsageError>("prompt", "expected the letters {} of residues, got {}", residues, prompt);
    }
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

std::string TokenText::Stream::add(std::int32_t token) {
  if (text_) return text_->add(token);
  return residues_ ? std::string(1, residues[static_cast<std::size_t>(token)]) : fmt::format("{} ", token);
}

std::vector<std::int32_t> TokenText::Stream::context() const {
  return text_ ? text_->context() : std::vector<std::int32_t>();
}

TokenText::Stream TokenText::behind(std::span<const std::int32_t> before) const {
  Stream stream;
  stream.residues_ = residues_;
  if (tokenizer_) stream.text_.emplace(*tokenizer_, before);
  return stream;
}

std::string TokenText::text(std::span<const std::int32_t> tokens) const {
  Stream stream = behind({});
  std::string text;
  for (const std::int32_t token : tokens) text += stream.add(token);
  return text + stream.finish();
}

}  // namespace linnet
