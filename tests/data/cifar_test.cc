#include "data/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "io/temporary_folder.h"
#include "linnet/dataset.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t pixels = cifar_size * cifar_size;

/// A record whose pixel p has the values p, p + 1 and p + 2 of red, green and blue (modulo 256).
std::string record(char label) {
  std::string bytes(1, label);
  for (std::int64_t c = 0; c < cifar_channels; ++c)
    for (std::int64_t p = 0; p < pixels; ++p) bytes += static_cast<char>(p + c);
  return bytes;
}

// A folder of five batches of two images and one test image.
class CifarFolder : public testing::Test {
 protected:
  CifarFolder() {
    for (char i = 1; i <= 5; ++i)
      folder.file("data_batch_" + std::to_string(i) + ".bin", record(i) + record(0));
    folder.file("test_batch.bin", record(9));
  }
  Datasets open(std::int64_t size = 0, bool labels = true, std::int64_t levels = 256) {
    return open_datasets(
        {.kind = "cifar10", .path = folder.path(), .size = size, .levels = levels, .labels = labels});
  }
  std::string error() {
    return error_of([&] { open(); });
  }

  TemporaryFolder folder;
};

TEST_F(CifarFolder, GivesTheChannelsOfEachPixelOneAfterAnother) {
  const Datasets data = open();
  EXPECT_EQ(data.training->size(), 10);
  EXPECT_EQ(data.validation->size(), 1);
  EXPECT_EQ(data.training->length(), 3072);
  EXPECT_EQ(image_shape(*data.training).height, 32);
  EXPECT_EQ(image_shape(*data.training).width, 32);
  EXPECT_EQ(image_shape(*data.training).channels, 3);
  EXPECT_EQ(data.training->vocabulary(), 256);
  EXPECT_EQ(data.training->classes(), 10);
  std::vector<std::int32_t> tokens(3072), targets(3072);
  for (std::int64_t i = 0; i < 10; ++i)
    EXPECT_EQ(data.training->read(i, tokens, targets), i % 2 == 0 ? i / 2 + 1 : 0);
  EXPECT_EQ(data.validation->read(0, tokens, targets), 9);
  EXPECT_EQ(tokens, targets);
  for (std::int64_t p = 0; p < pixels; ++p)
    for (std::int64_t c = 0; c < 3; ++c)
      ASSERT_EQ(tokens[static_cast<std::size_t>(3 * p + c)], (p + c) % 256) << p << " " << c;
}

TEST_F(CifarFolder, ASplitNeedsItsOwnFilesAlone) {
  const DataOptions options = {.kind = "cifar10", .path = folder.path(), .size = 0};
  std::vector<std::int32_t> tokens(3072), targets(3072);
  const auto label_of = [&](Split split) { return open_dataset(options, split)->read(0, tokens, targets); };
  for (int i = 2; i <= 5; ++i) folder.file("data_batch_" + std::to_string(i) + ".bin", "damaged");
  EXPECT_EQ(label_of(Split::validation), 9);
  EXPECT_THAT(error_of([&] { label_of(Split::training); }), HasSubstr("data_batch_2.bin"));
  for (char i = 1; i <= 5; ++i)
    folder.file("data_batch_" + std::to_string(i) + ".bin", record(i) + record(0));
  std::filesystem::remove(folder / "test_batch.bin");
  EXPECT_EQ(label_of(Split::training), 1);
  EXPECT_THAT(error_of([&] { label_of(Split::validation); }), HasSubstr("test_batch.bin"));
}

TEST_F(CifarFolder, TheLastTrainingImagesAreForValidationWhereSomeAreHeldOut) {
  const Datasets data =
      open_datasets({.kind = "cifar10", .path = folder.path(), .size = 16, .levels = 16, .held_out = 3});
  std::vector<std::int32_t> tokens(16 * 16 * 3), targets(tokens.size());
  const auto labels_of = [&](const Dataset& dataset) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      labels.push_back(dataset.read(i, tokens, targets));
      EXPECT_EQ(tokens[0], 17 / 16);
    }
    return labels;
  };
  EXPECT_EQ(labels_of(*data.training), (std::vector<std::int64_t>{1, 0, 2, 0, 3, 0, 4}));
  EXPECT_EQ(labels_of(*data.validation), (std::vector<std::int64_t>{0, 5, 0}));
  EXPECT_EQ(labels_of(*data.test), (std::vector<std::int64_t>{9}));
}

TEST_F(CifarFolder, ScalesEachChannelDownAndQuantises) {
  const Datasets data = open(16, false, 16);
  EXPECT_EQ(data.validation->length(), 16 * 16 * 3);
  EXPECT_EQ(data.validation->classes(), 0);
  std::vector<std::int32_t> tokens(16 * 16 * 3), targets(tokens.size());
  EXPECT_EQ(data.validation->read(0, tokens, targets), -1);
  // The first pixel is the mean of pixels 0, 1, 32 and 33: 16.5, 17.5 and 18.5, rounded up.
  EXPECT_THAT(std::vector(tokens.begin(), tokens.begin() + 3), ElementsAre(17 / 16, 18 / 16, 19 / 16));
  EXPECT_EQ(tokens[3 * 7], (16 + 14 + 1) / 16);
  EXPECT_THAT(error_of<UsageError>([&] { open(33); }), AllOf(HasSubstr("0 to 32"), HasSubstr("got 33")));
  EXPECT_THAT(error_of<UsageError>([&] { open(0, true, 257); }), HasSubstr("got 257"));
  EXPECT_THAT(error_of<UsageError>([] { open_datasets({.kind = "cifar10"}); }), HasSubstr("path"));
  EXPECT_THAT(error_of<UsageError>([&] {
                open_datasets({.kind = "cifar10", .path = folder.path(), .length = 1024, .size = 0});
              }),
              AllOf(HasSubstr("3072"), HasSubstr("32 × 32 × 3"), HasSubstr("got 1024")));
}

TEST_F(CifarFolder, FilesThatAreMissingOrDamagedAreNamed) {
  const std::string good = record(3) + record(0);
  for (const std::string name :
       {"data_batch_1.bin", "data_batch_3.bin", "data_batch_5.bin", "test_batch.bin"}) {
    SCOPED_TRACE(name);
    folder.file(name, "");
    EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("records of 3073 bytes, got 0")));
    folder.file(name, good.substr(1));
    EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("got 6145")));
    folder.file(name, record(0) + record(10));
    EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("0 to 9, got 10 in record 1")));
    std::filesystem::remove(folder / name);
    EXPECT_THAT(error(), HasSubstr(name));
    folder.file(name, good);
  }
  folder.file("data_batch_4.bin", record(1));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("data_batch_4.bin"), HasSubstr("expected 2 images"), HasSubstr("got 1")));
}

}  // namespace
}  // namespace linnet
