#include "data/text.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/names.h"
#include "data/tokenizer.h"
#include "data/windows.h"
#include "io/file.h"

namespace linnet {
namespace {

/// Windows over tokens: a std::string of bytes, or a std::vector of tokens.
template <class Tokens>
class WindowDataset final : public Dataset {
 public:
  WindowDataset(Tokens tokens, std::int64_t vocabulary, Windows windows, std::int64_t length)
      : tokens_(std::move(tokens)), vocabulary_(vocabulary), windows_(std::move(windows)), length_(length) {}
  std::int64_t size() const override { return windows_.size(); }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
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
};

template <class Tokens>
std::unique_ptr<Dataset> windows_of(Tokens tokens, std::int64_t vocabulary, std::int64_t length,
                                    bool overlapping) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  assert(length >= 1 && length <= size);
  const std::vector<Stretch> all = {{0, 0, size}};
  return std::make_unique<WindowDataset<Tokens>>(
      std::move(tokens), vocabulary,
      overlapping ? Windows::overlapping(all, length) : Windows::every(all, length), length);
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
  if (options.path.empty())
    fail<UsageError>("data", "expected the path of a file of {}, got none", options.kind);
  if (options.length < 1)
    fail<UsageError>("data", "expected data.length of at least 1 for {}, got {}", options.kind,
                     options.length);
  if (options.kind == "bytes" && !options.tokenizer.empty())
    fail<UsageError>("data", "expected data.kind = \"text\" for data.tokenizer, got \"bytes\"");
  std::string text = read_file(options.path);
  if (const std::size_t zero = text.find('\0'); options.kind == "text" && zero != std::string::npos)
    fail("data",
         "{}: expected text, got a binary file, whose byte {} is 0; the kind of such data is \"bytes\"",
         options.path, zero);
  const std::size_t held_out =
      options.tokenizer.empty() ? text.size() / 10 : text.size() - training_bytes(text);
  if (held_out < static_cast<std::size_t>(options.length))
    fail("data", "{}: expected a last tenth of at least data.length = {} bytes, got {} of {} bytes",
         options.path, options.length, held_out, text.size());
  std::string last = text.substr(text.size() - held_out);
  text.erase(text.size() - held_out);
  Datasets datasets;
  if (!options.tokenizer.empty()) {
    const Tokenizer tokenizer(options.tokenizer);
    const auto windows = [&](const std::string& of, const char* part, bool overlapping) {
      std::vector<std::int32_t> tokens = tokenizer.encode(of);
      if (tokens.size() < static_cast<std::size_t>(options.length))
        fail("data", "{}: expected at least data.length = {} tokens for {}, got {}", options.path,
             options.length, part, tokens.size());
      return windows_of(std::move(tokens), tokenizer.vocabulary(), options.length, overlapping);
    };
    if (parts.training) datasets.training = windows(text, "training", false);
    if (parts.validation) datasets.validation = windows(last, "validation", true);
    return datasets;
  }
  if (parts.training) datasets.training = every_window(std::move(text), options.length);
  if (parts.validation) datasets.validation = overlapping_windows(std::move(last), options.length);
  return datasets;
}

}  // namespace linnet
