#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linnet/export.h"

namespace linnet {

/// Makes tokens of text, and text of tokens: those of a model of SentencePiece (Kudo and Richardson,
/// "SentencePiece", 2018), or the bytes of the text. Immutable, and cheap to copy: any thread may use it.
class LINNET_API Tokenizer {
 public:
  /// A file with a model of SentencePiece. Throws Error for one that cannot be read or is no such model;
  /// UsageError where Linnet was built without SentencePiece.
  explicit Tokenizer(const std::filesystem::path& path);

  /// The tokenizer of a trained model, which has `bytes` as ModelAssets::tokenizer and so many tokens. Where
  /// it has none, its tokens are bytes, and the vocabulary is 256, or 258 in a model of pairs. Throws as
  /// above, and UsageError for a vocabulary that is not the tokenizer's.
  Tokenizer(std::string bytes, std::int64_t vocabulary);

  /// The contents of the file with the model of SentencePiece; empty where tokens are bytes.
  const std::string& bytes() const;

  /// Tokens are 0 … vocabulary() − 1.
  std::int64_t vocabulary() const;

  /// Of a model of pairs (data.kind = "pairs"), otherwise −1: the token after a source in a model without an
  /// encoder, and the one after a target, where an answer ends. They have no text.
  std::int32_t separator() const;
  std::int32_t end() const;

  /// The tokens of a text in UTF-8. SentencePiece encodes line by line, each with the newline at its end; a
  /// line longer than `longest_line` bytes is cut into pieces of at most so many, between characters. So
  /// memory and time grow with the text alone.
  std::vector<std::int32_t> encode(std::string_view text) const;
  static constexpr std::size_t longest_line = 1 << 14;

  /// The text of tokens. Those that are bytes of no whole character become U+FFFD each, unless all tokens are
  /// bytes, which stay as they are. Throws UsageError for tokens outside 0 … vocabulary() − 1.
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  friend class TextStream;

  void check(std::span<const std::int32_t> tokens) const;
  int byte_of(std::int32_t token) const;
  bool has_text(std::int32_t token) const;

  struct Impl;
  std::shared_ptr<const Impl> impl_;  // nullptr where tokens are bytes
  bool pairs_ = false;                // whether there are a separator and an end beside the bytes
};

/// The text of tokens that come one by one, in whole characters: what `add` and at the end `finish` return is
/// what Tokenizer::decode gives for all tokens together. (Rules by which a model of SentencePiece rewrites
/// decoded text apply to each part by itself.) Takes constant time per token and constant memory. One thread
/// at a time.
class LINNET_API TextStream {
 public:
  /// The text goes on behind the tokens `before`, a prompt or the `context` of another stream. Their own text
  /// is not returned, but for a character at their end that is not whole yet. Throws UsageError for tokens
  /// that the tokenizer does not have.
  explicit TextStream(Tokenizer tokenizer, std::span<const std::int32_t> before = {});

  /// What the token adds: the text so far that has not been returned, without a character at its end of which
  /// bytes may follow. Throws UsageError for a token that the tokenizer does not have; the stream is then
  /// unchanged.
  std::string add(std::int32_t token);

  /// The rest: bytes of a character that is not whole, as Tokenizer::decode gives them.
  std::string finish();

  /// A few tokens behind which another stream goes on exactly as this one.
  std::vector<std::int32_t> context() const;

 private:
  std::size_t whole() const;
  std::string close(std::size_t count);

  Tokenizer tokenizer_;
  std::vector<std::int32_t> within_text_;  // behind these, tokens are written as within any text
  std::vector<std::int32_t> context_;      // behind these, as they are to be written now
  std::vector<std::int32_t> open_;         // bytes of a character of which more may follow
};

}  // namespace linnet
