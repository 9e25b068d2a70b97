#include "data/pairs.h"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "data/files.h"

namespace linnet {
namespace {

class PairDataset final : public Dataset {
 public:
  PairDataset(std::int64_t size, std::function<Pair(std::int64_t)> pair_of, const DataOptions& options)
      : size_(size),
        pair_of_(std::move(pair_of)),
        length_(options.length),
        source_length_(options.source_length) {}
  std::int64_t size() const override { return size_; }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return pair_vocabulary; }
  std::int64_t source_length() const override { return source_length_; }
  std::int64_t source_vocabulary() const override { return source_length_ > 0 ? bytes : 0; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    assert(index >= 0 && index < size());
    const auto [source, target] = pair_of_(index);
    std::ranges::fill(tokens, -1);
    std::ranges::fill(targets, -1);
    std::size_t at = 0;
    if (source_length_ == 0) {
      for (const char byte : source) tokens[at++] = static_cast<std::uint8_t>(byte);
      tokens[at++] = pair_separator;
    }
    for (const char byte : target) {
      tokens[at] = targets[at] = static_cast<std::uint8_t>(byte);
      ++at;
    }
    tokens[at] = targets[at] = pair_end;
    return -1;
  }
  void read_source(std::int64_t index, std::span<std::int32_t> tokens) const override {
    if (source_length_ == 0) return;
    const std::string source = pair_of_(index).source;
    std::ranges::fill(tokens, -1);
    std::ranges::transform(source, tokens.begin(), [](char byte) { return static_cast<std::uint8_t>(byte); });
  }

 private:
  static constexpr std::int64_t bytes = 256;
  std::int64_t size_;
  std::function<Pair(std::int64_t)> pair_of_;
  std::int64_t length_, source_length_;
};

/// The pairs of a file, each of a size that fits the options.
void append_pairs(std::vector<Pair>& pairs, const std::filesystem::path& path, const DataOptions& options) {
  const bool separate = options.source_length > 0;
  // Tokens of the longest pair, or source and target, and the lines where they stand.
  std::int64_t longest = 0, line_of_longest = 0, longest_source = 0, line_of_source = 0;
  for (TabbedLine& line : read_tabbed_lines(path, "a source and a target")) {
    if (line.after.find('\t') != std::string::npos)
      fail("data", "{}: expected one tab in line {}, got several", path.string(), line.number);
    if (separate && line.before.empty())
      fail("data", "{}: expected a source in line {}, got none", path.string(), line.number);
    const std::int64_t source = std::ssize(line.before);
    const std::int64_t tokens = std::ssize(line.after) + (separate ? 1 : source + 2);
    if (tokens > longest) line_of_longest = line.number;
    longest = std::max(longest, tokens);
    if (source > longest_source) line_of_source = line.number;
    longest_source = std::max(longest_source, source);
    pairs.push_back({std::move(line.before), std::move(line.after)});
  }
  if (separate && longest_source > options.source_length)
    fail("data",
         "{}: expected sources of at most data.source_length = {} tokens, got one of {} in line {}, the "
         "longest",
         path.string(), options.source_length, longest_source, line_of_source);
  if (longest > options.length)
    fail("data",
         "{}: expected {} of at most data.length = {} tokens, {} included, got one of {} in line {}, the "
         "longest",
         path.string(), separate ? "targets" : "pairs", options.length,
         separate ? "end" : "separator and end", longest, line_of_longest);
}

}  // namespace

std::unique_ptr<Dataset> pair_dataset(std::int64_t size, std::function<Pair(std::int64_t)> pair_of,
                                      const DataOptions& options) {
  return std::make_unique<PairDataset>(size, std::move(pair_of), options);
}

Datasets open_pairs(const DataOptions& options, const Parts& parts) {
  if (options.length < 2)
    fail<UsageError>("data", "expected data.length of at least 2 for pairs, got {}", options.length);
  const auto read = [&](const char* key, const std::string& value) {
    std::vector<Pair> pairs;
    for (const std::filesystem::path& path : files_named(key, value, "pairs"))
      append_pairs(pairs, path, options);
    return pairs;
  };
  const auto hold_out = [&](std::vector<Pair>& all) {
    if (all.size() < held_out_every)
      fail("data", "{}: expected at least {} pairs, every tenth of which is held out, got {}", options.path,
           held_out_every, all.size());
    return take_held_out(all);
  };
  auto [training, validation, test] = read_parts(options, parts, read, hold_out);
  const auto dataset = [&](std::optional<std::vector<Pair>>& pairs) -> std::unique_ptr<Dataset> {
    if (!pairs) return nullptr;
    const std::int64_t size = std::ssize(*pairs);
    auto all = std::make_shared<const std::vector<Pair>>(std::move(*pairs));
    return pair_dataset(
        size, [all](std::int64_t index) { return (*all)[static_cast<std::size_t>(index)]; }, options);
  };
  return {dataset(training), dataset(validation), dataset(test)};
}

}  // namespace linnet
