#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "linnet/model.h"

namespace linnet {

/// The tokens of a model of one field as text: through the tokenizer in its folder, as bytes where there are
/// 256 of them, otherwise as numbers with blanks between them.
class TokenText {
 public:
  /// Throws Error where the model's tokenizer is damaged, UsageError where it is that of another model.
  explicit TokenText(const Model& model);

  bool numbers() const { return !tokenizer_ && !bytes_; }

  /// Throws UsageError for numbers that are no tokens.
  std::vector<std::int32_t> tokens(const std::string& prompt) const;

  /// What the tokens from `first` on add to the text of those before them.
  std::string added(std::span<const std::int32_t> tokens, std::size_t first) const;

  /// Bytes of such a text that no further token changes: all, but for a character at its end whose last bytes
  /// may follow. A tokenizer writes each of its bytes as U+FFFD until then.
  std::size_t settled(std::string_view text) const;

  /// The last tokens, as far as they decide how the text of further ones is written.
  std::vector<std::int32_t> context(std::span<const std::int32_t> tokens) const;

 private:
  std::optional<Tokenizer> tokenizer_;
  bool bytes_;
  std::int64_t vocabulary_;
};

}  // namespace linnet
