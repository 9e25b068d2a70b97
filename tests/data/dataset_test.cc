#include "linnet/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/png.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ShuffledIndex, EveryEpochIsAPermutation) {
  for (const std::int64_t size : {1, 2, 3, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
    for (const std::int64_t epoch : {0, 1, 7}) {
      std::vector<int> seen(static_cast<std::size_t>(size));
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t index = shuffled_index(3, epoch * size + i, size);
        ASSERT_TRUE(index >= 0 && index < size) << size;
        ++seen[static_cast<std::size_t>(index)];
      }
      EXPECT_EQ(std::ranges::count(seen, 1), size) << size << ' ' << epoch;
    }
  }
}

TEST(ShuffledIndex, DependsOnSeedAndEpoch) {
  constexpr std::int64_t size = 1000;
  int as_other_epoch = 0, as_other_seed = 0, in_order = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    as_other_epoch += shuffled_index(1, i, size) == shuffled_index(1, size + i, size);
    as_other_seed += shuffled_index(1, i, size) == shuffled_index(2, i, size);
    in_order += shuffled_index(1, i, size) == i;
  }
  // A random permutation meets another in one place, on average.
  EXPECT_LE(as_other_epoch, 8);
  EXPECT_LE(as_other_seed, 8);
  EXPECT_LE(in_order, 8);
}

TEST(ShuffledIndex, EveryOrderOfFewIsAboutAsLikely) {
  constexpr int epochs = 24000;
  std::map<std::vector<std::int64_t>, int> counts;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::vector<std::int64_t> order;
    for (int i = 0; i < 4; ++i) order.push_back(shuffled_index(5, 4 * epoch + i, 4));
    ++counts[order];
  }
  EXPECT_EQ(counts.size(), 24u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, epochs / 24, epochs / 24 * 0.35);
}

TEST(ShuffledIndex, WorksForHugeSizes) {
  const std::int64_t size = (std::int64_t{1} << 62) + 12345;
  const std::int64_t a = shuffled_index(1, 0, size), b = shuffled_index(1, size - 1, size);
  EXPECT_TRUE(a >= 0 && a < size && b >= 0 && b < size && a != b);
}

TEST(Levels, PixelsOfTokensAreQuantisedBack) {
  for (std::int64_t levels = 2; levels <= 256; ++levels) {
    EXPECT_EQ(pixel_of_token(0, levels), 0);
    EXPECT_EQ(pixel_of_token(static_cast<std::int32_t>(levels - 1), levels), 255);
    EXPECT_EQ(token_of_pixel(0, levels), 0);
    EXPECT_EQ(token_of_pixel(255, levels), levels - 1);
    for (std::int32_t token = 0; token < levels; ++token)
      ASSERT_EQ(token_of_pixel(pixel_of_token(token, levels), levels), token) << levels;
  }
  for (int pixel = 0; pixel < 256; ++pixel) EXPECT_EQ(pixel_of_token(pixel, 256), pixel);
  for (const auto& [token, levels] : {std::pair{0, 1}, {0, 0}, {3, 3}, {-1, 8}, {0, 257}})
    EXPECT_THROW(pixel_of_token(token, levels), UsageError);
}

std::string refusal(DataOptions options) {
  return error_of<UsageError>([&] { open_datasets(options); });
}

TEST(OpenDatasets, PicturesAloneHaveAShape) {
  const Datasets digits = open_datasets({.kind = "digits", .size = 9, .examples = 1});
  const ImageShape shape = image_shape(*digits.training);
  EXPECT_EQ(shape.height, 9);
  EXPECT_EQ(shape.width, 9);
  EXPECT_EQ(shape.channels, 1);
  EXPECT_EQ(digits.training->length(), 81);
  const Datasets copy = open_datasets({.kind = "copy", .length = 10, .examples = 1});
  EXPECT_EQ(image_shape(*copy.training).height, 0);
  EXPECT_EQ(image_shape(*copy.training).width, 0);
  EXPECT_EQ(image_shape(*copy.training).channels, 1);
}

TEST(OpenDatasets, RefusesOptionsThatCannotBe) {
  EXPECT_THAT(refusal({.kind = "digit"}),
              AllOf(HasSubstr("\"digit\""), HasSubstr("did you mean \"digits\"")));
  EXPECT_THAT(refusal({.kind = "mnist"}), HasSubstr("path"));
  EXPECT_THAT(refusal({.kind = "text", .length = 8}), HasSubstr("path"));
  EXPECT_THAT(refusal({.kind = "text", .path = "file"}), HasSubstr("length"));
  EXPECT_THAT(refusal({.kind = "copy", .length = 3}), HasSubstr("length of 4"));
  EXPECT_THAT(refusal({.kind = "copy", .length = -8}), HasSubstr("got -8"));
  EXPECT_THAT(refusal({.kind = "copy", .length = 8, .examples = 0}), HasSubstr("examples, got 0"));
  EXPECT_THAT(refusal({.examples = std::int64_t{1} << 60}), HasSubstr("examples"));
  EXPECT_THAT(refusal({.size = 7}), HasSubstr("8 to 64"));
  EXPECT_THAT(refusal({.size = 65}), HasSubstr("8 to 64"));
  EXPECT_THAT(refusal({.size = -1}), HasSubstr("got -1"));
  EXPECT_THAT(refusal({.levels = 1}), HasSubstr("levels"));
  EXPECT_THAT(refusal({.levels = 257}), HasSubstr("levels"));
  EXPECT_THAT(refusal({.length = 784}), HasSubstr("256 for images of 16 × 16, got 784"));
}

TEST(OpenDatasets, RefusesKeysThatTheKindDoesNotLookAt) {
  const auto refusal_of = [](const char* kind, const auto& set) {
    DataOptions options{.kind = kind, .path = "file", .length = 8};
    set(options);
    return refusal(options);
  };
  const auto split = [](DataOptions& options) { options.split = "0.8,0.9"; };
  EXPECT_THAT(refusal_of("text", split),
              HasSubstr("data of kind series or sound for data.split, got \"text\""));
  EXPECT_THAT(refusal_of("lines", [](DataOptions& options) { options.tokenizer = "a.model"; }),
              HasSubstr("data of kind text for data.tokenizer, got \"lines\""));
  EXPECT_THAT(refusal_of("copy", [](DataOptions& options) { options.validation = "file"; }),
              HasSubstr("lines, pairs, series or sound for data.validation, got \"copy\""));
  for (const auto& [key, set] : std::map<std::string, std::function<void(DataOptions&)>>{
           {"data.test", [](DataOptions& options) { options.test = "file"; }},
           {"data.fields", [](DataOptions& options) { options.fields = "8"; }},
           {"data.token_bytes", [](DataOptions& options) { options.token_bytes = 4; }},
           {"data.columns", [](DataOptions& options) { options.columns = "a"; }},
           {"data.time", [](DataOptions& options) { options.time = "a"; }},
           {"data.split", split},
           {"data.missing", [](DataOptions& options) { options.missing = "forward-fill"; }},
           {"data.horizon", [](DataOptions& options) { options.horizon = 2; }},
           {"data.sound", [](DataOptions& options) { options.sound = "mu-law"; }},
           {"data.target", [](DataOptions& options) { options.target = "file"; }},
           {"data.validation_target", [](DataOptions& options) { options.validation_target = "file"; }},
           {"data.test_target", [](DataOptions& options) { options.test_target = "file"; }},
           {"data.packing", [](DataOptions& options) { options.packing = true; }},
           {"data.patch", [](DataOptions& options) { options.patch = 2; }},
           {"data.columns_apart", [](DataOptions& options) { options.columns_apart = true; }},
           {"data.source_length", [](DataOptions& options) { options.source_length = 4; }}}) {
    const std::string message = refusal_of("digits", set);
    EXPECT_THAT(message, AllOf(HasSubstr("for " + key + ", got \"digits\""), HasSubstr("data of kind ")))
        << key;
  }
}

TEST(OpenDataset, GivesThePartsOfOpenDatasets) {
  const TemporaryFolder folder;
  std::string text, proteins, lines;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i % 26);
  for (int i = 0; i < 20; ++i) proteins += ">" + std::to_string(i) + "\n" + "ACDEFGHIKLMN"[i % 12] + "WY\n";
  for (int i = 0; i < 20; ++i) lines += std::string(1, "bac"[i % 3]) + "\tx" + std::to_string(i) + "\n";
  for (int i = 0; i < 20; ++i) {
    const std::filesystem::path path = folder / (i % 2 == 0 ? "images/even" : "images/odd");
    std::filesystem::create_directories(path);
    write_png(path / (std::to_string(i) + ".png"),
              {.width = 2, .height = 1, .pixels = {static_cast<std::uint8_t>(10 * i), 255}});
  }
  const std::string lines_path = folder.file("lines", lines), tokens_path = folder.file("raw.bin", text);
  const std::string text_path = folder.file("text.txt", text),
                    fasta_path = folder.file("all.fasta", proteins);
  for (const DataOptions& options : {DataOptions{.kind = "digits", .size = 8, .examples = 20},
                                     DataOptions{.kind = "copy", .length = 12, .examples = 20},
                                     DataOptions{.kind = "text", .path = text_path, .length = 16},
                                     DataOptions{.kind = "bytes", .path = text_path, .length = 16},
                                     DataOptions{.kind = "fasta", .path = fasta_path, .length = 4},
                                     DataOptions{.kind = "lines", .path = lines_path, .length = 4},
                                     DataOptions{.kind = "pairs", .path = lines_path, .length = 8},
                                     DataOptions{.kind = "images", .path = folder / "images", .size = 0},
                                     DataOptions{.kind = "tokens", .path = tokens_path, .length = 5}}) {
    const Datasets both = open_datasets(options);
    for (const auto& [split, whole] : {std::pair(Split::training, both.training.get()),
                                       std::pair(Split::validation, both.validation.get())}) {
      const auto alone = open_dataset(options, split);
      ASSERT_EQ(alone->size(), whole->size()) << options.kind;
      EXPECT_EQ(alone->vocabulary(), whole->vocabulary()) << options.kind;
      EXPECT_EQ(alone->classes(), whole->classes()) << options.kind;
      const auto length = static_cast<std::size_t>(whole->length());
      std::vector<std::int32_t> tokens(length), targets(length), of_whole(length), targets_of_whole(length);
      for (std::int64_t i = 0; i < whole->size(); ++i) {
        EXPECT_EQ(alone->read(i, tokens, targets), whole->read(i, of_whole, targets_of_whole));
        EXPECT_EQ(tokens, of_whole) << options.kind << " " << i;
        EXPECT_EQ(targets, targets_of_whole) << options.kind << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace linnet
