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

struct Pair {
  std::string source, target;
};

class PairDataset final : public Dataset {
 public:
  PairDataset(std::vector<Pair> pairs, std::int64_t length) : pairs_(std::move(pairs)), length_(length) {}
  std::int64_t size() const override { return std::ssize(pairs_); }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return pair_vocabulary; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    assert(index >= 0 && index < size());
    const auto& [source, target] = pairs_[static_cast<std::size_t>(index)];
    std::ranges::fill(tokens, -1);
    std::ranges::fill(targets, -1);
    std::size_t at = 0;
    for (const char byte : source) tokens[at++] = static_cast<std::uint8_t>(byte);
    tokens[at++] = pair_separator;
    for (const char byte : target) {
      tokens[at] = targets[at] = static_cast<std::uint8_t>(byte);
      ++at;
    }
    tokens[at] = targets[at] = pair_end;
    return -1;
  }

 private:
  std::vector<Pair> pairs_;
  std::int64_t length_;
};

}  // namespace

Datasets open_pairs(const DataOptions& options, const Parts& parts) {
  if (options.length < 2)
    fail<UsageError>("data", "expected data.length of at least 2 for pairs, got {}", options.length);
  const auto read = [&](const char* key, const std::string& value) {
    std::vector<Pair> pairs;
    for (const std::filesystem::path& path : files_named(key, value, "pairs")) {
      std::int64_t longest = 0, line_of_longest = 0;
      for (TabbedLine& line : read_tabbed_lines(path, "a source and a target")) {
        if (line.after.find('\t') != std::string::npos)
          fail("data", "{}: expected one tab in line {}, got several", path.string(), line.number);
        const std::int64_t tokens = std::ssize(line.before) + std::ssize(line.after) + 2;
        if (tokens > longest) line_of_longest = line.number;
        longest = std::max(longest, tokens);
        pairs.push_back({std::move(line.before), std::move(line.after)});
      }
      if (longest > options.length)
        fail("data",
             "{}: expected pairs of at most data.length = {} tokens, separator and end included, got one of "
             "{} in line {}, the longest",
             path.string(), options.length, longest, line_of_longest);
    }
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
    return pairs ? std::make_unique<PairDataset>(std::move(*pairs), options.length) : nullptr;
  };
  return {dataset(training), dataset(validation), dataset(test)};
}

}  // namespace linnet
