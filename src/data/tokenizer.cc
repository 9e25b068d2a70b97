#include "data/tokenizer.h"

#include <utility>

#include "base/fail.h"
#include "io/file.h"

#ifdef LINNET_SENTENCEPIECE
#include <sentencepiece_processor.h>

#include <algorithm>
#include <string>

#include "base/names.h"

namespace linnet {
namespace {

void check(const sentencepiece::util::Status& status) {
  if (!status.ok()) fail("tokenizer", "SentencePiece failed: {}", status.ToString());
}

/// Bytes of the first piece that is encoded by itself.
std::size_t first_piece(std::string_view text) {
  const std::size_t newline = text.find('\n'),
                    line = newline == std::string_view::npos ? text.size() : newline + 1;
  if (line <= Tokenizer::longest_line) return line;
  std::size_t end = Tokenizer::longest_line;
  constexpr std::size_t longest_character = 4;
  while (end > Tokenizer::longest_line - longest_character && is_utf8_continuation(text[end])) --end;
  return end;
}

}  // namespace

struct Tokenizer::Processor {
  sentencepiece::SentencePieceProcessor model;
};

Tokenizer::Tokenizer(std::string bytes, const std::string& origin)
    : bytes_(std::move(bytes)), processor_(std::make_unique<Processor>()) {
  const auto status = processor_->model.LoadFromSerializedProto(bytes_);
  if (bytes_.empty() || !status.ok() || vocabulary() < 1)
    fail("tokenizer", "{}: expected a model of SentencePiece, got another file or a damaged one", origin);
}

std::int64_t Tokenizer::vocabulary() const { return processor_->model.GetPieceSize(); }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  std::vector<int> of_piece;
  while (!text.empty()) {
    const std::size_t bytes = first_piece(text);
    check(processor_->model.Encode(text.substr(0, bytes), &of_piece));
    tokens.insert(tokens.end(), of_piece.begin(), of_piece.end());
    text.remove_prefix(bytes);
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  check(processor_->model.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text));
  return text;
}

}  // namespace linnet

#else

namespace linnet {

struct Tokenizer::Processor {};

Tokenizer::Tokenizer(std::string, const std::string& origin) {
  fail<UsageError>(
      "tokenizer",
      "expected Linnet to be built with SentencePiece (libsentencepiece-dev) for {}, got it without", origin);
}
std::int64_t Tokenizer::vocabulary() const { return 0; }
std::vector<std::int32_t> Tokenizer::encode(std::string_view) const { return {}; }
std::string Tokenizer::decode(std::span<const std::int32_t>) const { return {}; }

}  // namespace linnet

#endif

namespace linnet {

Tokenizer::Tokenizer(const std::filesystem::path& path) : Tokenizer(read_file(path), path.string()) {}
Tokenizer::~Tokenizer() = default;

}  // namespace linnet
