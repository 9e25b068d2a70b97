#include "data/tokens.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/lists.h"
#include "base/names.h"
#include "data/files.h"
#include "data/selection.h"
#include "data/token_file.h"

namespace linnet {
namespace {

/// Steps of a file that belong together.
struct Stretch {
  std::shared_ptr<const TokenFile> file;
  std::int64_t begin = 0, end = 0;
  bool is_piece = false;  ///< of a file with offsets
};

enum class Windows {
  training,     ///< every window of a file without offsets, overlapping ones of a piece
  counted_once  ///< overlapping ones, of which every step counts in one
};

class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::vector<Stretch> stretches, std::vector<std::int64_t> fields, std::int64_t length,
               Windows windows)
      : stretches_(std::move(stretches)), fields_(std::move(fields)), length_(length), windows_(windows) {
    for (const Stretch& stretch : stretches_) {
      first_.push_back(size_);
      size_ += windows_of(stretch);
    }
  }
  std::int64_t size() const override { return size_; }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return *std::ranges::max_element(fields_); }
  std::vector<std::int64_t> fields() const override { return fields_; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    assert(index >= 0 && index < size_);
    assert(std::ssize(tokens) == length_ * std::ssize(fields_) && tokens.size() == targets.size());
    const auto at = static_cast<std::size_t>(std::ranges::upper_bound(first_, index) - first_.begin() - 1);
    const Stretch& stretch = stretches_[at];
    const std::int64_t window = index - first_[at], begin = begin_of(stretch, window);
    const std::int64_t steps = std::min(length_, stretch.end - begin);
    const std::int64_t known =
        windows_ == Windows::counted_once && window > 0 ? begin_of(stretch, window - 1) + length_ - begin : 0;
    const std::size_t fields = fields_.size(), end = static_cast<std::size_t>(steps) * fields;
    stretch.file->read(begin, fields_, tokens.first(end));
    std::ranges::fill(tokens.subspan(end), -1);
    std::ranges::copy(tokens, targets.begin());
    std::ranges::fill(targets.first(static_cast<std::size_t>(known) * fields), -1);
    return -1;
  }
  std::int64_t steps(std::int64_t index) const override {
    const auto at = static_cast<std::size_t>(std::ranges::upper_bound(first_, index) - first_.begin() - 1);
    return std::min(length_, stretches_[at].end - stretches_[at].begin);
  }
  std::int64_t raw_bytes() const { return stretches_.front().file->raw_bytes(); }

 private:
  /// Steps between windows that overlap, at most.
  std::int64_t stride() const { return std::max<std::int64_t>(1, length_ / 2); }
  bool every_window(const Stretch& stretch) const {
    return windows_ == Windows::training && !stretch.is_piece;
  }
  std::int64_t windows_of(const Stretch& stretch) const {
    const std::int64_t rest = stretch.end - stretch.begin - length_;
    if (rest <= 0) return 1;
    if (every_window(stretch)) return rest + 1;
    return 1 + (rest + stride() - 1) / stride();
  }
  std::int64_t begin_of(const Stretch& stretch, std::int64_t window) const {
    const std::int64_t rest = stretch.end - stretch.begin - length_;
    if (rest <= 0) return stretch.begin;
    if (every_window(stretch)) return stretch.begin + window;
    // ⌊rest · window / last⌋, with rest = last · stride − spare: no product is much larger than the stretch.
    const std::int64_t last = windows_of(stretch) - 1, spare = last * stride() - rest;
    return stretch.begin + stride() * window - (spare * window + last - 1) / last;
  }

  std::vector<Stretch> stretches_;
  std::vector<std::int64_t> first_;  // examples before those of each stretch
  std::vector<std::int64_t> fields_;
  std::int64_t length_, size_ = 0;
  Windows windows_;
};

std::vector<Stretch> stretches_of(std::shared_ptr<const TokenFile> file) {
  const std::vector<std::int64_t>& offsets = file->offsets();
  if (offsets.empty()) return {{file, 0, file->steps(), false}};
  std::vector<Stretch> pieces;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
    if (offsets[i] < offsets[i + 1]) pieces.push_back({file, offsets[i], offsets[i + 1], true});
  return pieces;
}

/// Every tenth piece, and the last tenth of every other stretch.
std::vector<Stretch> hold_out(std::vector<Stretch>& all, const std::string& origin) {
  std::vector<Stretch> kept, held_out;
  std::size_t pieces = 0;
  for (const Stretch& stretch : all) {
    if (stretch.is_piece) {
      (is_held_out(pieces++) ? held_out : kept).push_back(stretch);
      continue;
    }
    const std::int64_t cut = stretch.end - (stretch.end - stretch.begin) / std::int64_t{held_out_every};
    kept.push_back(stretch);
    kept.back().end = cut;
    if (cut == stretch.end) continue;
    held_out.push_back(stretch);
    held_out.back().begin = cut;
  }
  if (held_out.empty())
    fail("data", "{}: expected at least {} {}, of which a tenth is held out, got {}", origin, held_out_every,
         pieces > 0 ? "pieces" : "steps", pieces > 0 ? pieces : static_cast<std::size_t>(all[0].end));
  all = std::move(kept);
  return held_out;
}

}  // namespace

std::int64_t raw_token_bytes(const Dataset& dataset) {
  const auto* const tokens = opened_as<TokenDataset>(dataset);
  const std::int64_t bytes = tokens != nullptr ? tokens->raw_bytes() : 0;
  return bytes > 0 ? bytes : DataOptions().token_bytes;
}

std::vector<std::int64_t> field_sizes(const std::string& fields) {
  const auto sizes = whole_numbers(fields, 1, most_token_values);
  if (!sizes)
    fail<UsageError>("data",
                     "expected the number of values of each field in data.fields, such as \"50,30\", got "
                     "\"{}\"",
                     shortened(fields));
  return *sizes;
}

std::vector<std::filesystem::path> token_files(const char* key, const std::string& value) {
  constexpr std::string_view offsets = ".offsets.npy";
  std::vector<std::filesystem::path> files = files_named(key, value, "tokens");
  std::erase_if(files, [&](const std::filesystem::path& file) {
    const std::string name = file.string();
    if (!name.ends_with(offsets)) return false;
    return std::ranges::count(
               files, std::filesystem::path(name.substr(0, name.size() - offsets.size()) + ".npy")) > 0;
  });
  return files;
}

Datasets open_tokens(const DataOptions& options, const Parts& parts) {
  check_example_length(options, "tokens");
  if (options.token_bytes != 2 && options.token_bytes != 4)
    fail<UsageError>("data", "expected data.token_bytes of 2 or 4, got {}", options.token_bytes);
  const std::vector<std::int64_t> declared = field_sizes(options.fields);
  const std::int64_t raw_fields = declared.empty() ? 1 : std::ssize(declared);
  std::vector<std::int64_t> sizes = declared;
  std::string first_name;
  const auto read = [&](const char* key, const std::string& value) {
    std::vector<Stretch> all;
    for (const std::filesystem::path& path : token_files(key, value)) {
      const auto file =
          std::make_shared<const TokenFile>(path, static_cast<std::size_t>(options.token_bytes), raw_fields);
      if (!declared.empty() && file->fields() != std::ssize(declared))
        fail("data", "{}: expected {} fields as data.fields has, got {}", file->name(), declared.size(),
             file->fields());
      if (first_name.empty()) {
        first_name = file->name();
        sizes.resize(static_cast<std::size_t>(file->fields()));
      } else if (file->fields() != std::ssize(sizes)) {
        fail("data", "{}: expected {} fields as in {}, got {}", file->name(), sizes.size(), first_name,
             file->fields());
      }
      if (declared.empty()) {
        const std::vector<std::int64_t> largest =
            file->largest(std::vector<std::int64_t>(sizes.size(), most_token_values));
        for (std::size_t f = 0; f < sizes.size(); ++f) sizes[f] = std::max(sizes[f], largest[f] + 1);
      } else if (!file->always_inside(declared)) {
        file->largest(declared);  // refuses tokens that are not among these
      }
      const std::vector<Stretch> stretches = stretches_of(file);
      all.insert(all.end(), stretches.begin(), stretches.end());
    }
    return all;
  };
  // The largest token of any part decides where data.fields does not.
  Parts wanted = parts;
  if (declared.empty()) {
    wanted.training = parts.training || !options.path.empty();
    wanted.validation = parts.validation || !options.validation.empty();
    wanted.test = true;
  }
  auto contents = read_parts(options, wanted, read,
                             [&](std::vector<Stretch>& all) { return hold_out(all, options.path); });
  const auto dataset = [&](std::optional<std::vector<Stretch>>& stretches,
                           Windows windows) -> std::unique_ptr<Dataset> {
    if (!stretches) return nullptr;
    return std::make_unique<TokenDataset>(std::move(*stretches), sizes, options.length, windows);
  };
  if (options.packing && contents.training)
    for (const Stretch& stretch : *contents.training)
      if (!stretch.is_piece)
        fail<UsageError>("data", "{}: expected offsets of pieces for data.packing, got a file without them",
                         stretch.file->name());
  Datasets datasets;
  if (parts.training) datasets.training = dataset(contents.training, Windows::training);
  if (parts.validation) datasets.validation = dataset(contents.validation, Windows::counted_once);
  if (parts.test) datasets.test = dataset(contents.test, Windows::counted_once);
  return datasets;
}

}  // namespace linnet
