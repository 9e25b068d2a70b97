#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linnet/model.h"
#include "linnet/tokenizer.h"

namespace linnet {

/// The tokens of a model of one field as text: through its tokenizer, as bytes where there are 256 of them,
/// as the letters of residues where they are asked for, otherwise as numbers with blanks between them.
class TokenText {
 public:
  /// Throws Error where the model's tokenizer is damaged, UsageError where it is that of another model.
  explicit TokenText(const Model& model, bool residues = false);
  /// Of the contents of a tokenizer's file, empty where there is none, and the number of tokens. Throws as
  /// above.
  TokenText(const std::string& tokenizer, std::int64_t vocabulary, bool residues);

  bool numbers() const { return !tokenizer_ && !residues_; }

  /// Throws UsageError for letters and numbers that are no tokens.
  std::vector<std::int32_t> tokens(const std::string& prompt) const;

  /// As TextStream, for numbers too.
  class Stream {
   public:
    std::string add(std::int32_t token);
    std::string finish() { return text_ ? text_->finish() : std::string(); }
    std::vector<std::int32_t> context() const;

   private:
    friend class TokenText;
    std::optional<TextStream> text_;
    bool residues_ = false;
  };

  /// The text behind these tokens.
  Stream behind(std::span<const std::int32_t> before) const;

  /// The whole text of tokens.
  std::string text(std::span<const std::int32_t> tokens) const;

 private:
  std::optional<Tokenizer> tokenizer_;
  bool residues_;
  std::int64_t vocabulary_;
};

}  // namespace linnet
