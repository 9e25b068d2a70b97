#include "data/text.h"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/names.h"
#include "data/files.h"
#include "data/windows.h"
#include "io/file.h"
#include "linnet/tokenizer.h"

namespace linnet {
namespace {

/// Windows over tokens: a std::string of bytes, or a std::vector of tokens.
template <class Tokens>
class WindowDataset final : public Dataset {
 public:
  WindowDataset(Tokens tokens, std::int64_t vocabulary, Windows windows, std::int64_t length,
                std::string tokenizer)
      : tokens_(std::move(tokens)),
        vocabulary_(vocabulary),
        windows_(std::move(windows)),
        length_(length),
        tokenizer_(std::move(tokenizer)) {}
  std::int64_t size() const override { return windows_.size(); }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::string tokenizer() const override { return tokenizer_; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    const Window window = windows_[index];
    for (std::int64_t i = 0; i < length_; ++i) {
      const std::int32_t token = token_at(window.begin + i);
      tokens[static_cast<std::size_t>(i)] = token;
      targets[static_cast<std::size_t>(i)] = window.begin + i >= window.counts_from ? token : -1;
    }
    return -1;
  }

 private:
  std::int32_t token_at(std::int64_t at) const {
    const auto token = tokens_[static_cast<std::size_t>(at)];
    if constexpr (sizeof(token) == 1)
      return static_cast<std::uint8_t>(token);
    else
      return token;
  }

  Tokens tokens_;
  std::int64_t vocabulary_;
  Windows windows_;
  std::int64_t length_;
  std::string tokenizer_;
};

template <class Tokens>
std::unique_ptr<Dataset> windows_of(Tokens tokens, std::int64_t vocabulary, std::int64_t length,
                                    bool overlapping, std::string tokenizer = {}) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  assert(length >= 1 && length <= size);
  const std::vector<Stretch> all = {{0, 0, size}};
  return std::make_unique<WindowDataset<Tokens>>(
      std::move(tokens), vocabulary,
      overlapping ? Windows::overlapping(all, length) : Windows::every(all, length), length,
      std::move(tokenizer));
}

constexpr std::int64_t byte_values = 256;

}  // namespace

std::unique_ptr<Dataset> every_window(std::string text, std::int64_t length) {
  return windows_of(std::move(text), byte_values, length, false);
}

std::unique_ptr<Dataset> overlapping_windows(std::string text, std::int64_t length) {
  return windows_of(std::move(text), byte_values, length, true);
}

std::size_t training_bytes(std::string_view text) {
  std::size_t bytes = text.size() - text.size() / 10;
  while (bytes < text.size() && is_utf8_continuation(text[bytes])) ++bytes;
  return bytes;
}

Datasets open_text(const DataOptions& options, const Parts& parts) {
  check_example_length(options, options.kind);
  const bool tokenized = options.opened_tokenizer || !options.tokenizer.empty();
  const auto length = static_cast<std::size_t>(options.length);
  const auto read = [&](const char* key, const std::string& value) {
    std::string text;
    for (const std::filesystem::path& path : files_named(key, value, options.kind)) {
      std::string bytes = read_file(path);
      if (options.kind == "text") check_text(bytes, path.string(), "; the kind of such data is \"bytes\"");
      if (text.empty())
        text = std::move(bytes);
      else
        text += bytes;
    }
    if (!tokenized && text.size() < length)
      fail("data", "{}: expected at least data.length = {} bytes in {}, got {}", value, length, key,
           text.size());
    return text;
  };
  const auto hold_out = [&](std::string& text) {
    const std::size_t kept = tokenized ? training_bytes(text) : text.size() - text.size() / held_out_every;
    if (!tokenized && text.size() - kept < length)
      fail("data", "{}: expected a last tenth of at least data.length = {} bytes, got {} of {} bytes",
           options.path, length, text.size() - kept, text.size());
    std::string last = text.substr(kept);
    text.erase(kept);
    return last;
  };
  auto [training, validation, test] = read_parts(options, parts, read, hold_out);
  std::optional<Tokenizer> tokenizer = options.opened_tokenizer;
  if (tokenized && !tokenizer) tokenizer.emplace(options.tokenizer);
  const auto open = [&](std::optional<std::string>& text, const char* part, const std::string& own_files,
                        bool overlapping) -> std::unique_ptr<Dataset> {
    if (!text) return nullptr;
    if (!tokenized)
      return overlapping ? overlapping_windows(std::move(*text), options.length)
                         : every_window(std::move(*text), options.length);
    std::vector<std::int32_t> tokens = tokenizer->encode(*text);
    if (tokens.size() < length)
      fail("data", "{}: expected at least data.length = {} tokens for {}, got {}",
           own_files.empty() ? options.path : own_files, length, part, tokens.size());
    return windows_of(std::move(tokens), tokenizer->vocabulary(), options.length, overlapping,
                      tokenizer->bytes());
  };
  Datasets datasets;
  datasets.training = open(training, "training", "", false);
  datasets.validation = open(validation, "validation", options.validation, true);
  datasets.test = open(test, "testing", options.test, true);
  return datasets;
}

}  // namespace linnet
