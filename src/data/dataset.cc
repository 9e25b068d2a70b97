#include "linnet/dataset.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/names.h"
#include "base/random.h"
#include "data/copy_task.h"
#include "data/fasta.h"
#include "data/image_folder.h"
#include "data/images.h"
#include "data/lines.h"
#include "data/pairs.h"
#include "data/parts.h"
#include "data/reverse_task.h"
#include "data/series.h"
#include "data/sound.h"
#include "data/text.h"
#include "data/tokens.h"

namespace linnet {
namespace {

class CopyDataset final : public Dataset {
 public:
  CopyDataset(std::int64_t size, std::int64_t length, const Random& random)
      : size_(size), length_(length), random_(random) {}
  std::int64_t size() const override { return size_; }
  std::int64_t length() const override { return length_; }
  std::int64_t vocabulary() const override { return copy_vocabulary; }
  std::int64_t read(std::int64_t index, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) const override {
    assert(index >= 0 && index < size_);
    const std::size_t length = static_cast<std::size_t>(length_);
    draw_copy(tokens.first(length), targets.first(length), random_, static_cast<std::uint64_t>(index));
    return -1;
  }

 private:
  std::int64_t size_, length_;
  Random random_;
};

Datasets open_copy(const DataOptions& options, const Parts& parts) {
  constexpr std::int64_t longest = std::int64_t{1} << 30;
  if (options.length < 4 || options.length > longest)
    fail<UsageError>("data", "expected data.length of 4 to {} for the copy task, got {}", longest,
                     options.length);
  const std::uint64_t seed = static_cast<std::uint64_t>(options.seed);
  const auto draw = [&](std::int64_t count, std::uint32_t stream) {
    return std::make_unique<CopyDataset>(count, options.length, Random(seed, Draw::synthetic_data, stream));
  };
  Datasets datasets;
  if (parts.training) datasets.training = draw(options.examples, 0);
  if (parts.validation) datasets.validation = draw(std::max<std::int64_t>(1, options.examples / 10), 1);
  return datasets;
}

void check_examples(const DataOptions& options) {
  constexpr std::int64_t most = 10'000'000;
  if (options.examples < 1 || options.examples > most)
    fail<UsageError>("data", "expected 1 to {} examples, got {}", most, options.examples);
}

/// Throws UsageError for a key with a value that data of this kind do not look at.
void check_keys(const DataOptions& options) {
  using Kinds = std::vector<std::string>;
  const DataOptions defaults;
  const auto check = [&](const char* key, const auto DataOptions::*value, const Kinds& kinds) {
    if (options.*value == defaults.*value || std::ranges::count(kinds, options.kind) > 0) return;
    const std::string others = fmt::format("{}", fmt::join(kinds.begin(), kinds.end() - 1, ", "));
    fail<UsageError>("data", "expected data of kind {}{}{} for {}, got \"{}\"", others,
                     others.empty() ? "" : " or ", kinds.back(), key, options.kind);
  };
  const Kinds own_files = {"images", "text", "bytes", "fasta", "tokens", "lines", "pairs", "series", "sound"};
  check("data.validation", &DataOptions::validation, own_files);
  check("data.test", &DataOptions::test, own_files);
  check("data.held_out", &DataOptions::held_out, {"mnist", "cifar10"});
  if (options.held_out < 0)
    fail<UsageError>("data", "expected data.held_out of at least 0, got {}", options.held_out);
  check("data.fields", &DataOptions::fields, {"tokens"});
  check("data.token_bytes", &DataOptions::token_bytes, {"tokens"});
  check("data.columns", &DataOptions::columns, {"series"});
  check("data.time", &DataOptions::time, {"series"});
  check("data.split", &DataOptions::split, {"series", "sound"});
  check("data.missing", &DataOptions::missing, {"series"});
  check("data.horizon", &DataOptions::horizon, {"series"});
  check("data.sound", &DataOptions::sound, {"sound"});
  check("data.target", &DataOptions::target, {"sound"});
  check("data.validation_target", &DataOptions::validation_target, {"sound"});
  check("data.test_target", &DataOptions::test_target, {"sound"});
  check("data.tokenizer", &DataOptions::tokenizer, {"text"});
  check("data.packing", &DataOptions::packing, {"fasta", "lines", "pairs", "tokens"});
  check("data.patch", &DataOptions::patch, {"series", "sound"});
  check("data.columns_apart", &DataOptions::columns_apart, {"series"});
  check("data.source_length", &DataOptions::source_length, {"pairs", "reverse"});
}

Datasets open_kind(const DataOptions& options, const Parts& parts) {
  const std::vector<std::string> kinds = data_kinds();
  if (std::ranges::count(kinds, options.kind) == 0) {
    const std::string nearest = nearest_name(options.kind, kinds);
    fail<UsageError>("data", "expected a kind of data among {}, got \"{}\"{}", fmt::join(kinds, ", "),
                     options.kind, nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
  }
  check_keys(options);
  if (options.source_length < 0)
    fail<UsageError>("data", "expected data.source_length of at least 0, got {}", options.source_length);
  if (options.kind == "text" || options.kind == "bytes") return open_text(options, parts);
  if (options.kind == "fasta") return open_fasta(options, parts);
  if (options.kind == "tokens") return open_tokens(options, parts);
  if (options.kind == "images") return open_images(options, parts);
  if (options.kind == "lines") return open_lines(options, parts);
  if (options.kind == "pairs") return open_pairs(options, parts);
  if (options.kind == "series") return open_series(options, parts);
  if (options.kind == "sound") return open_sound(options, parts);
  if (options.kind == "mnist") return open_mnist(options, parts);
  if (options.kind == "cifar10") return open_cifar(options, parts);
  check_examples(options);
  if (options.kind == "digits") return open_digits(options, parts);
  return options.kind == "copy" ? open_copy(options, parts) : open_reversals(options, parts);
}

Datasets open_parts(const DataOptions& options, const Parts& parts) {
  Datasets datasets = open_kind(options, parts);
  if (options.packing && datasets.training) datasets.training = pack_examples(std::move(datasets.training));
  return datasets;
}

}  // namespace

std::vector<std::string> data_kinds() {
  return {"digits", "mnist",  "cifar10", "images", "text",    "bytes",  "copy",
          "fasta",  "tokens", "lines",   "pairs",  "reverse", "series", "sound"};
}

std::int64_t shuffled_index(std::uint64_t seed, std::int64_t i, std::int64_t size) {
  assert(i >= 0 && size >= 1);
  const std::uint64_t count = static_cast<std::uint64_t>(size);
  const auto epoch = Random(seed, Draw::batches).block(static_cast<std::uint64_t>(i) / count);
  const std::uint64_t key = std::uint64_t{epoch[0]} << 32 | epoch[1];
  // Two halves of equal width whose pairs number fewer than 4 · size. Whatever falls outside is permuted
  // again, which ends since the network is a permutation and its start lies inside.
  const int half = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::uint64_t value = static_cast<std::uint64_t>(i) % count;
  constexpr std::uint32_t rounds = 6;
  do {
    std::uint64_t left = value >> half, right = value & mask;
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      const std::uint64_t mixed = Random(key, Draw::batches, round).block(right)[0] & mask;
      left = std::exchange(right, left ^ mixed);
    }
    value = left << half | right;
  } while (value >= count);
  return static_cast<std::int64_t>(value);
}

std::int32_t token_of_pixel(std::uint8_t pixel, std::int64_t levels) {
  return static_cast<std::int32_t>(pixel * levels / 256);
}

std::uint8_t pixel_of_token(std::int32_t token, std::int64_t levels) {
  if (levels < 2 || levels > 256 || token < 0 || token >= levels)
    fail<UsageError>("pixel_of_token", "expected one of 2 to 256 levels, got level {} of {}", token, levels);
  // The pixels of a token run from `low` to `high`; the first token stands for its lowest, the last for its
  // highest.
  const std::int64_t low = (token * 256 + levels - 1) / levels;
  const std::int64_t high = ((token + 1) * 256 + levels - 1) / levels - 1;
  return static_cast<std::uint8_t>(low + (high - low) * token / (levels - 1));
}

std::vector<std::int64_t> Dataset::fields() const {
  return vocabulary() > 0 ? std::vector{vocabulary()} : std::vector<std::int64_t>{};
}

void Dataset::read_values(std::int64_t, std::span<float>, std::span<float>) const {}

std::int64_t Dataset::steps(std::int64_t index) const {
  const std::size_t each = fields().size();
  if (each == 0) {
    const auto rows = static_cast<std::size_t>(length());
    std::vector<float> values(rows * static_cast<std::size_t>(columns())),
        targets(rows * static_cast<std::size_t>(target_columns()));
    read_values(index, values, targets);
    const auto is_padding = [&](const std::vector<float>& all, std::size_t row) {
      const std::size_t numbers = all.size() / rows;
      return std::ranges::all_of(std::span(all).subspan(row * numbers, numbers),
                                 [](float number) { return std::isnan(number); });
    };
    std::size_t known = rows;
    while (known > 1 && is_padding(values, known - 1) && is_padding(targets, known - 1)) --known;
    return static_cast<std::int64_t>(known);
  }
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length()) * each), targets(tokens.size());
  read(index, tokens, targets);
  std::size_t known = 0;
  while (known < tokens.size() && tokens[known] >= 0) known += each;
  return static_cast<std::int64_t>(known / each);
}

std::vector<PackedSequence> Dataset::read_sequences(std::int64_t index, std::span<std::int32_t> tokens,
                                                    std::span<std::int32_t> targets) const {
  const std::int64_t label = read(index, tokens, targets);
  return {{length(), label}};
}
void Dataset::read_source(std::int64_t, std::span<std::int32_t>) const {}

std::int64_t PictureDataset::length() const {
  const ImageShape shape = image();
  return shape.height * shape.width * shape.channels;
}

ImageShape image_shape(const Dataset& dataset) {
  const auto* pictures = dynamic_cast<const PictureDataset*>(&dataset);
  return pictures != nullptr ? pictures->image() : ImageShape{};
}

Datasets open_datasets(const DataOptions& options) { return open_parts(options, {}); }

std::unique_ptr<Dataset> open_dataset(const DataOptions& options, Split split) {
  Datasets datasets = open_parts(options, {.training = split == Split::training,
                                           .validation = split == Split::validation,
                                           .test = split == Split::test});
  if (split == Split::training) return std::move(datasets.training);
  if (split == Split::validation) return std::move(datasets.validation);
  if (datasets.test == nullptr)
    fail<UsageError>("data",
                     "expected data with a part for testing, got data of kind \"{}\" without one; data.test "
                     "names files for it where the kind takes them",
                     options.kind);
  return std::move(datasets.test);
}

}  // namespace linnet
