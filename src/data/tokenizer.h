#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

/// Makes tokens of text with a model of SentencePiece (Kudo and Richardson, "SentencePiece", 2018), and text
/// of tokens. Immutable: any thread may use it.
class Tokenizer {
 public:
  /// Throws Error for a file that cannot be read or is no such model; UsageError where Linnet was built
  /// without SentencePiece.
  explicit Tokenizer(const std::filesystem::path& path);
  /// Of the contents of such a file; `origin` stands for it in errors.
  Tokenizer(std::string bytes, const std::string& origin);
  ~Tokenizer();

  /// The contents of the model's file.
  const std::string& bytes() const { return bytes_; }

  /// The number of the model's pieces: tokens are 0 … vocabulary() − 1.
  std::int64_t vocabulary() const;

  /// The tokens of a text. Lines are encoded one by one, each with the newline at its end; a longer one than
  /// `longest_line` bytes is cut into pieces of at most so many, between characters. So memory and time grow
  /// with the text alone.
  std::vector<std::int32_t> encode(std::string_view text) const;
  static constexpr std::size_t longest_line = 1 << 14;

  /// The text of tokens, which are below vocabulary().
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  struct Processor;
  std::string bytes_;
  std::unique_ptr<Processor> processor_;
};

}  // namespace linnet
