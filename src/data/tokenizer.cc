#include "linnet/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/fail.h"
#include "base/names.h"
#include "data/pairs.h"
#include "io/file.h"

#ifdef LINNET_SENTENCEPIECE
#include <sentencepiece_processor.h>

#include <charconv>
#endif

namespace linnet {

#ifdef LINNET_SENTENCEPIECE

namespace {

void require_ok(const sentencepiece::util::Status& status) {
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

struct Tokenizer::Impl {
  Impl(std::string contents, const std::string& origin) : bytes(std::move(contents)) {
    const auto status = model.LoadFromSerializedProto(bytes);
    if (bytes.empty() || !status.ok() || vocabulary() < 1)
      fail("tokenizer", "{}: expected a model of SentencePiece, got another file or a damaged one", origin);
  }

  std::int64_t vocabulary() const { return model.GetPieceSize(); }

  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> tokens;
    std::vector<int> of_piece;
    while (!text.empty()) {
      const std::size_t count = first_piece(text);
      require_ok(model.Encode(text.substr(0, count), &of_piece));
      tokens.insert(tokens.end(), of_piece.begin(), of_piece.end());
      text.remove_prefix(count);
    }
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const {
    std::string text;
    require_ok(model.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text));
    return text;
  }

  /// The byte that the token stands for, or −1. Such pieces are called <0x00> … <0xFF>.
  int byte_of(std::int32_t token) const {
    constexpr std::size_t before_digits = 3;
    if (!model.IsByte(token)) return -1;
    const std::string& piece = model.IdToPiece(token);
    int byte = -1;
    std::from_chars(piece.data() + before_digits, piece.data() + piece.size(), byte, 16);
    return byte;
  }

  std::string bytes;
  sentencepiece::SentencePieceProcessor model;
};

#else

struct Tokenizer::Impl {
  Impl(const std::string&, const std::string& origin) {
    fail<UsageError>("tokenizer",
                     "expected Linnet to be built with SentencePiece (libsentencepiece-dev) for {}, got it "
                     "without",
                     origin);
  }
  std::int64_t vocabulary() const { return 0; }
  std::vector<std::int32_t> encode(std::string_view) const { return {}; }
  std::string decode(std::span<const std::int32_t>) const { return {}; }
  int byte_of(std::int32_t) const { return -1; }

  std::string bytes;
};

#endif

namespace {

constexpr std::int64_t byte_values = 256;

/// Bytes from which on a character of UTF-8 has several.
constexpr int first_of_several = 0xc0;

/// Bytes of the character that begins with this one; 1 for what begins none.
std::size_t bytes_of_character(int first) {
  constexpr int of_three = 0xe0, of_four = 0xf0, of_none = 0xf8;
  if (first < first_of_several || first >= of_none) return 1;
  return first < of_three ? 2 : first < of_four ? 3 : 4;
}

}  // namespace

Tokenizer::Tokenizer(const std::filesystem::path& path)
    : impl_(std::make_shared<const Impl>(read_file(path), path.string())) {}

Tokenizer::Tokenizer(std::string bytes, std::int64_t vocabulary) {
  if (!bytes.empty()) {
    impl_ = std::make_shared<const Impl>(std::move(bytes), "the model's tokenizer.model");
    if (impl_->vocabulary() != vocabulary)
      fail<UsageError>(
          "tokenizer",
          "expected a tokenizer of the model's {} tokens, got one of {}, which does not match it", vocabulary,
          impl_->vocabulary());
    return;
  }
  pairs_ = vocabulary == pair_vocabulary;
  if (!pairs_ && vocabulary != byte_values)
    fail<UsageError>("tokenizer", "expected a model with a tokenizer, or one of bytes, got one of {} tokens",
                     vocabulary);
}

const std::string& Tokenizer::bytes() const {
  static const auto& none = *new std::string;  // never destroyed: threads may outlive the program's end
  return impl_ ? impl_->bytes : none;
}

std::int64_t Tokenizer::vocabulary() const {
  return impl_ ? impl_->vocabulary() : pairs_ ? pair_vocabulary : byte_values;
}

std::int32_t Tokenizer::separator() const { return pairs_ ? pair_separator : -1; }

std::int32_t Tokenizer::end() const { return pairs_ ? pair_end : -1; }

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  if (impl_) return impl_->encode(text);
  std::vector<std::int32_t> tokens(text.size());
  std::ranges::transform(text, tokens.begin(), [](char byte) { return static_cast<unsigned char>(byte); });
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  check(tokens);
  if (impl_) return impl_->decode(tokens);
  std::string text;
  for (const std::int32_t token : tokens)
    if (has_text(token)) text += static_cast<char>(token);
  return text;
}

void Tokenizer::check(std::span<const std::int32_t> tokens) const {
  const std::int64_t count = vocabulary();
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= count)
      fail<UsageError>("tokenizer", "expected tokens in 0 … {}, got {}", count - 1, token);
}

int Tokenizer::byte_of(std::int32_t token) const { return impl_ ? impl_->byte_of(token) : token; }

bool Tokenizer::has_text(std::int32_t token) const { return impl_ || token < byte_values; }

TextStream::TextStream(Tokenizer tokenizer, std::span<const std::int32_t> before)
    : tokenizer_(std::move(tokenizer)) {
  tokenizer_.check(before);
  // Only at its beginning does a text leave out a blank: behind any whole text tokens are written alike.
  for (std::int32_t token = 0; within_text_.empty() && token < tokenizer_.vocabulary(); ++token)
    if (tokenizer_.byte_of(token) < first_of_several && !tokenizer_.decode({&token, 1}).empty())
      within_text_ = {token};
  std::ranges::copy_if(before, std::back_inserter(open_),
                       [&](std::int32_t token) { return tokenizer_.has_text(token); });
  close(whole());
}

std::string TextStream::add(std::int32_t token) {
  tokenizer_.check({&token, 1});
  if (!tokenizer_.has_text(token)) return {};
  open_.push_back(token);
  return close(whole());
}

std::string TextStream::finish() { return close(open_.size()); }

std::vector<std::int32_t> TextStream::context() const {
  std::vector<std::int32_t> tokens = context_;
  tokens.insert(tokens.end(), open_.begin(), open_.end());
  return tokens;
}

std::size_t TextStream::whole() const {
  for (std::size_t begin = open_.size(); begin-- > 0;) {
    const int byte = tokenizer_.byte_of(open_[begin]);
    if (byte >= 0 && is_utf8_continuation(static_cast<char>(byte))) continue;
    return open_.size() - begin < bytes_of_character(byte) ? begin : open_.size();
  }
  return open_.size();
}

std::string TextStream::close(std::size_t count) {
  constexpr std::size_t most_context = 32;
  const auto end = open_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<std::int32_t> tokens = context_;
  tokens.insert(tokens.end(), open_.begin(), end);
  std::string text = tokenizer_.decode(tokens);
  const std::size_t before = tokenizer_.decode(context_).size();
  tokens.resize(std::min(tokens.size(), most_context));
  context_ = text.empty() ? std::move(tokens) : within_text_;
  open_.erase(open_.begin(), end);
  return text.erase(0, before);
}

}  // namespace linnet
