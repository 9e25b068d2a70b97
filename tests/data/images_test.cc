#include "data/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "data/idx.h"
#include "io/file.h"
#include "io/temporary_folder.h"
#include "support/contexts.h"
#include "support/gzip.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ScaleDown, AveragesAreas) {
  const std::vector<std::uint8_t> pixels = {0,  10, 20,  30,  40,  50,  60,  70,
                                            80, 90, 100, 110, 120, 130, 140, 150};
  EXPECT_THAT(scale_down(any_context(), pixels, 1, 4, 4, 2), ElementsAre(25, 45, 105, 125));
  EXPECT_THAT(scale_down(any_context(), pixels, 1, 4, 4, 1), ElementsAre(75));
  EXPECT_THAT(scale_down(any_context(), pixels, 4, 2, 2, 1), ElementsAre(15, 55, 95, 135));
  // Three pixels become two: each new one covers one and a half old ones.
  const std::vector<std::uint8_t> nine = {0, 90, 240, 0, 90, 240, 0, 90, 240};
  EXPECT_THAT(scale_down(any_context(), nine, 1, 3, 3, 2), ElementsAre(30, 190, 30, 190));
}

TEST(ScaleDown, KeepsConstantsAndSizes) {
  const std::vector<std::uint8_t> white(28 * 20, 255);
  for (const std::int64_t size : {1, 7, 13, 16, 20})
    EXPECT_THAT(scale_down(any_context(), white, 1, 28, 20, size), testing::Each(255));
  std::vector<std::uint8_t> pixels(49);
  for (std::size_t i = 0; i < 49; ++i) pixels[i] = static_cast<std::uint8_t>(i * 5);
  EXPECT_EQ(scale_down(any_context(), pixels, 1, 7, 7, 7), pixels);
}

// A folder of two training images and one test image of 4 × 4.
class MnistFolder : public testing::Test {
 protected:
  MnistFolder() {
    std::vector<std::uint8_t> pixels(32);
    for (std::size_t i = 0; i < 32; ++i) pixels[i] = static_cast<std::uint8_t>(i * 8);
    write_idx(folder / "train-images-idx3-ubyte", Shape{2, 4, 4}, pixels);
    write_idx(folder / "train-labels-idx1-ubyte", Shape{2}, std::vector<std::uint8_t>{9, 0});
    write_idx(folder / "t10k-images-idx3-ubyte", Shape{1, 4, 4}, std::span(pixels).first(16));
    write_idx(folder / "t10k-labels-idx1-ubyte", Shape{1}, std::vector<std::uint8_t>{5});
  }
  Datasets open(std::int64_t size, bool labels = true) {
    return open_datasets(
        {.kind = "mnist", .path = folder.path(), .size = size, .levels = 16, .labels = labels});
  }
  std::string error() {
    return error_of([&] { open(0); });
  }

  TemporaryFolder folder;
};

TEST_F(MnistFolder, GivesQuantisedTokensAndLabels) {
  const Datasets data = open(0);
  EXPECT_EQ(data.training->size(), 2);
  EXPECT_EQ(data.training->length(), 16);
  EXPECT_EQ(image_shape(*data.training).height, 4);
  EXPECT_EQ(image_shape(*data.training).width, 4);
  EXPECT_EQ(data.training->vocabulary(), 16);
  EXPECT_EQ(data.training->classes(), 10);
  std::vector<std::int32_t> tokens(16), targets(16);
  EXPECT_EQ(data.training->read(0, tokens, targets), 9);
  EXPECT_EQ(data.training->read(1, tokens, targets), 0);
  EXPECT_EQ(tokens, targets);
  EXPECT_THAT(tokens, ElementsAre(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15));
  EXPECT_EQ(data.validation->read(0, tokens, targets), 5);
}

TEST_F(MnistFolder, ASplitNeedsItsOwnFilesAlone) {
  const DataOptions options = {.kind = "mnist", .path = folder.path(), .size = 0, .levels = 16};
  std::vector<std::int32_t> tokens(16), targets(16);
  const auto label_of = [&](Split split) { return open_dataset(options, split)->read(0, tokens, targets); };
  EXPECT_EQ(label_of(Split::training), 9);
  EXPECT_EQ(label_of(Split::validation), 5);
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"})
    std::filesystem::rename(folder / name, folder / (std::string("away-") + name));
  EXPECT_EQ(label_of(Split::validation), 5);
  EXPECT_THAT(error_of([&] { label_of(Split::training); }), HasSubstr("train-images-idx3-ubyte"));
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte"));
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"})
    std::filesystem::rename(folder / (std::string("away-") + name), folder / name);
  std::filesystem::remove(folder / "t10k-images-idx3-ubyte");
  EXPECT_EQ(label_of(Split::training), 9);
  EXPECT_THAT(error_of([&] { label_of(Split::validation); }), HasSubstr("t10k-images-idx3-ubyte"));
}

TEST_F(MnistFolder, TheLastTrainingImagesAreForValidationWhereSomeAreHeldOut) {
  const DataOptions options = {
      .kind = "mnist", .path = folder.path(), .size = 0, .levels = 16, .held_out = 1};
  std::vector<std::int32_t> tokens(16), targets(16);
  const Datasets data = open_datasets(options);
  EXPECT_EQ(data.training->size(), 1);
  EXPECT_EQ(data.training->read(0, tokens, targets), 9);
  EXPECT_EQ(data.validation->size(), 1);
  EXPECT_EQ(data.validation->read(0, tokens, targets), 0);
  EXPECT_THAT(tokens, ElementsAre(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15));
  EXPECT_EQ(data.test->size(), 1);
  EXPECT_EQ(data.test->read(0, tokens, targets), 5);

  // Each part by itself is the same, from its own files alone.
  const auto label_of = [&](Split split) { return open_dataset(options, split)->read(0, tokens, targets); };
  EXPECT_EQ(label_of(Split::test), 5);
  std::filesystem::remove(folder / "t10k-images-idx3-ubyte");
  EXPECT_EQ(open_dataset(options, Split::training)->size(), 1);
  EXPECT_EQ(label_of(Split::training), 9);
  EXPECT_EQ(label_of(Split::validation), 0);
  EXPECT_THAT(error_of([&] { label_of(Split::test); }), HasSubstr("t10k-images-idx3-ubyte"));
}

TEST_F(MnistFolder, HoldsOutNoLabelsWhereThereAreNone) {
  const Datasets data = open_datasets(
      {.kind = "mnist", .path = folder.path(), .size = 0, .levels = 16, .labels = false, .held_out = 1});
  std::vector<std::int32_t> tokens(16), targets(16);
  EXPECT_EQ(data.training->classes() + data.validation->classes(), 0);
  EXPECT_EQ(data.validation->read(0, tokens, targets), -1);
  EXPECT_EQ(tokens[0], 8);
}

TEST_F(MnistFolder, SomeTrainingImagesRemainWhereOthersAreHeldOut) {
  const auto refusal = [&](const std::string& kind, std::int64_t held_out) {
    return error_of<UsageError>([&] {
      open_datasets({.kind = kind, .path = folder.path(), .length = 16, .size = 0, .held_out = held_out});
    });
  };
  EXPECT_THAT(refusal("mnist", 2), AllOf(HasSubstr("less than the 2 images"), HasSubstr("got 2")));
  EXPECT_THAT(refusal("mnist", -1), AllOf(HasSubstr("data.held_out"), HasSubstr("got -1")));
  EXPECT_THAT(refusal("text", 1), HasSubstr("mnist or cifar10 for data.held_out, got \"text\""));
}

TEST_F(MnistFolder, ItsTestFilesAreForTestingAlsoWhereTheyAreForValidation) {
  const DataOptions options = {.kind = "mnist", .path = folder.path(), .size = 0, .levels = 16};
  std::vector<std::int32_t> tokens(16), targets(16);
  EXPECT_EQ(open_dataset(options, Split::test)->read(0, tokens, targets), 5);
  EXPECT_EQ(open_datasets(options).test, nullptr);
}

TEST_F(MnistFolder, ScalesDown) {
  const Datasets data = open(2);
  EXPECT_EQ(data.validation->length(), 4);
  std::vector<std::int32_t> tokens(4), targets(4);
  data.validation->read(0, tokens, targets);
  EXPECT_THAT(tokens, ElementsAre(1, 2, 5, 6));  // of pixels 20, 36, 84, 100
  EXPECT_THAT(error_of<UsageError>([&] { open(5); }), AllOf(HasSubstr("at most 4"), HasSubstr("got 5")));
  EXPECT_THAT(error_of<UsageError>([&] { open(-1); }), HasSubstr("got -1"));
}

TEST_F(MnistFolder, MayBeGzippedAndNamedWithADot) {
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}) {
    folder.file(std::string(name) + ".gz", gzipped(read_file(folder / name)));
    std::filesystem::remove(folder / name);
  }
  std::filesystem::rename(folder / "t10k-images-idx3-ubyte", folder / "t10k-images.idx3-ubyte");
  const Datasets data = open(4);
  EXPECT_EQ(data.training->size(), 2);
  EXPECT_EQ(data.validation->size(), 1);
}

TEST_F(MnistFolder, NeedsNoLabelsWhenNoneAreWanted) {
  std::filesystem::remove(folder / "train-labels-idx1-ubyte");
  std::filesystem::remove(folder / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(error(), AllOf(HasSubstr("expected train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz in"),
                             HasSubstr(folder.path().string())));
  const Datasets data = open(0, false);
  EXPECT_EQ(data.training->classes(), 0);
  std::vector<std::int32_t> tokens(16), targets(16);
  EXPECT_EQ(data.training->read(0, tokens, targets), -1);
}

TEST_F(MnistFolder, FilesThatDoNotFitAreErrors) {
  const std::vector<std::uint8_t> bytes(32);
  write_idx(folder / "train-labels-idx1-ubyte", Shape{3}, std::span(bytes).first(3));
  EXPECT_THAT(error(), AllOf(HasSubstr("train-labels"), HasSubstr("shape [2]"), HasSubstr("got [3]")));
  write_idx(folder / "train-labels-idx1-ubyte", Shape{2}, std::vector<std::uint8_t>{1, 10});
  EXPECT_THAT(error(), AllOf(HasSubstr("train-labels"), HasSubstr("labels from 0 to 9, got 10")));
  write_idx(folder / "train-labels-idx1-ubyte", Shape{2}, std::span(bytes).first(2));
  write_idx(folder / "train-images-idx3-ubyte", Shape{32}, bytes);
  EXPECT_THAT(error(), AllOf(HasSubstr("train-images"), HasSubstr("got [32]")));
  write_idx(folder / "train-images-idx3-ubyte", Shape{0, 4, 4}, {});
  EXPECT_THAT(error(), HasSubstr("got [0, 4, 4]"));
  write_idx(folder / "train-images-idx3-ubyte", Shape{2, 2, 8}, bytes);
  EXPECT_THAT(error(), HasSubstr("expected test images of 2 × 8, as for training, got 4 × 4"));
  folder.file("train-images-idx3-ubyte", "");
  EXPECT_THAT(error(), HasSubstr("got 0"));
}

}  // namespace
}  // namespace linnet
