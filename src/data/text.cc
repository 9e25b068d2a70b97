#include "data/text.h"

#include <algorithm>
#include <cassert>

#include "base/fail.h"
#include "data/files.h"
#include "io/file.h"

namespace linnet {
namespace {

class TextDataset : public Dataset {
 public:
  TextDataset(std::string text, std::int64_t length) : text_(std::move(text)), length_(length) {
    assert(length >= 1 && length <= bytes());
  }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return 256; }

 protected:
  std::int64_t bytes() const { return static_cast<std::int64_t>(text_.size()); }

  // The window that begins at byte `begin`, of which bytes from `counts_from` on count.
  std::int64_t read_window(std::int64_t begin, std::int64_t counts_from, std::span<std::int32_t> tokens,
                           std::span<std::int32_t> targets) const {
    for (std::int64_t i = 0; i < length_; ++i) {
      const std::int32_t byte = static_cast<std::uint8_t>(text_[static_cast<std::size_t>(begin + i)]);
      tokens[static_cast<std::size_t>(i)] = byte;
      targets[static_cast<std::size_t>(i)] = begin + i >= counts_from ? byte : -1;
    }
    return -1;
  }

 private:
  std::string text_;
  std::int64_t length_;
};

class EveryWindow final : public TextDataset {
 public:
  using TextDataset::TextDataset;
  std::int64_t size() const override { return bytes() - length() + 1; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    assert(index >= 0 && index < size());
    return read_window(index, index, tokens, targets);
  }
};

class OverlappingWindows final : public TextDataset {
 public:
  using TextDataset::TextDataset;
  std::int64_t size() const override { return 1 + (bytes() - length() + stride() - 1) / stride(); }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    assert(index >= 0 && index < size());
    // The last window ends with the text, so it may overlap by more. Where the one before it ends, this one
    // counts.
    const std::int64_t begin = std::min(index * stride(), bytes() - length());
    return read_window(begin, index == 0 ? 0 : (index - 1) * stride() + length(), tokens, targets);
  }

 private:
  std::int64_t stride() const { return std::max<std::int64_t>(1, length() / 2); }
};

}  // namespace

std::unique_ptr<Dataset> every_window(std::string text, std::int64_t length) {
  return std::make_unique<EveryWindow>(std::move(text), length);
}

std::unique_ptr<Dataset> overlapping_windows(std::string text, std::int64_t length) {
  return std::make_unique<OverlappingWindows>(std::move(text), length);
}

Datasets open_text(const DataOptions& options, const Parts& parts) {
  if (options.length < 1)
    fail<UsageError>("data", "expected data.length of at least 1 for {}, got {}", options.kind,
                     options.length);
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
    if (text.size() < length)
      fail("data", "{}: expected at least data.length = {} bytes in {}, got {}", value, length, key,
           text.size());
    return text;
  };
  const auto hold_out = [&](std::string& text) {
    const std::size_t held_out = text.size() / held_out_every;
    if (held_out < length)
      fail("data", "{}: expected a last tenth of at least data.length = {} bytes, got {} of {} bytes",
           options.path, length, held_out, text.size());
    std::string last = text.substr(text.size() - held_out);
    text.erase(text.size() - held_out);
    return last;
  };
  auto [training, validation, test] = read_parts(options, parts, read, hold_out);
  Datasets datasets;
  if (training) datasets.training = every_window(std::move(*training), options.length);
  if (validation) datasets.validation = overlapping_windows(std::move(*validation), options.length);
  if (test) datasets.test = overlapping_windows(std::move(*test), options.length);
  return datasets;
}

}  // namespace linnet
