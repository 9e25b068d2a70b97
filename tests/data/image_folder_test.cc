#include "data/image_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#ifdef LINNET_TURBOJPEG
#include "io/encoded_jpeg.h"
#endif
#include "io/file.h"
#include "io/png.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class ImageFolders : public testing::Test {
 protected:
  // An image of one value, or of one colour.
  std::filesystem::path image(const std::string& name, const std::vector<std::uint8_t>& colour,
                              std::int64_t height = 2, std::int64_t width = 3) {
    std::filesystem::create_directories((folder / name).parent_path());
    Image image{.width = width, .height = height, .channels = std::ssize(colour), .pixels = {}};
    for (std::int64_t i = 0; i < width * height; ++i)
      image.pixels.insert(image.pixels.end(), colour.begin(), colour.end());
    write_png(folder / name, image);
    return folder / name;
  }
  DataOptions options(const std::string& name, std::int64_t size = 0) {
    return {.kind = "images", .path = folder / name, .size = size};
  }
  // Twelve cats of 10, 11, … and three dogs.
  void animals(const std::string& name) {
    for (int i = 0; i < 12; ++i)
      image(fmt::format("{}/cats/{:02}.png", name, i), {static_cast<std::uint8_t>(10 + i)});
    for (int i = 0; i < 3; ++i) image(fmt::format("{}/dogs/{}.PNG", name, i), {200});
  }
  std::string refusal(const DataOptions& options) {
    return error_of([&] { open_datasets(options); });
  }

  TemporaryFolder folder;
};

std::vector<std::int32_t> tokens_of(const Dataset& set, std::int64_t index, std::int64_t label) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(set.length())), targets(tokens);
  EXPECT_EQ(set.read(index, tokens, targets), label);
  EXPECT_EQ(tokens, targets);
  return tokens;
}

TEST_F(ImageFolders, HaveTheirClassesByNameAndHoldOutEveryTenthOfEach) {
  animals("all");
  std::filesystem::create_directories(folder / "all/ants");  // without images: no class
  folder.file("all/cats/notes.txt", "x");
  folder.file("all/cats/.hidden.png", "x");
  const Datasets data = open_datasets(options("all"));
  EXPECT_EQ(data.training->classes(), 2);
  EXPECT_EQ(data.training->vocabulary(), 256);
  EXPECT_EQ(data.training->length(), 6);
  EXPECT_EQ(image_shape(*data.training).height, 2);
  EXPECT_EQ(image_shape(*data.training).width, 3);
  EXPECT_EQ(image_shape(*data.training).channels, 1);
  ASSERT_EQ(data.training->size(), 11 + 3);
  EXPECT_THAT(tokens_of(*data.training, 0, 0), Each(10));
  EXPECT_THAT(tokens_of(*data.training, 9, 0), Each(20));
  EXPECT_THAT(tokens_of(*data.training, 13, 1), Each(200));
  ASSERT_EQ(data.validation->size(), 1);
  EXPECT_THAT(tokens_of(*data.validation, 0, 0), Each(19));
  EXPECT_EQ(data.test, nullptr);
}

TEST_F(ImageFolders, OfTheirOwnForValidationHaveTheSameClasses) {
  animals("train");
  image("valid/dogs/a.png", {1});
  DataOptions given = options("train");
  given.validation = folder / "valid";
  given.levels = 16;
  EXPECT_EQ(open_datasets(given).training->size(), 15);
  const auto set = open_dataset(given, Split::validation);
  EXPECT_EQ(set->classes(), 2);
  EXPECT_EQ(set->vocabulary(), 16);
  EXPECT_THAT(tokens_of(*set, 0, 1), Each(0));
  image("valid/mice/a.png", {1});
  EXPECT_THAT(refusal(given), AllOf(HasSubstr("2 classes of data.path"), HasSubstr("\"mice\"")));
  given.labels = false;
  EXPECT_EQ(open_datasets(given).validation->classes(), 0);
}

TEST_F(ImageFolders, OfPartsThatAreNotOpenedMayBeFewOrMissing) {
  image("few/cats/0.png", {1});
  image("few/dogs/0.png", {1});
  image("test/dogs/0.png", {2});
  DataOptions given = options("few");
  given.test = folder / "test";
  given.validation = folder / "none";
  EXPECT_THAT(tokens_of(*open_dataset(given, Split::test), 0, 1), Each(2));
  EXPECT_THAT(error_of([&] { open_dataset(given, Split::validation); }), HasSubstr("none"));
  given.validation = "";
  EXPECT_THAT(tokens_of(*open_dataset(given, Split::test), 0, 1), Each(2));
  EXPECT_THAT(error_of([&] { open_dataset(given, Split::training); }), HasSubstr("at least 10 images"));
  std::filesystem::remove_all(folder / "test");
  animals("few");
  EXPECT_EQ(open_dataset(given, Split::validation)->size(), 1);
}

TEST_F(ImageFolders, AreScaledAndOfOneColourSpace) {
  animals("all");
  image("all/dogs/red.png", {200, 100, 50}, 8, 4);
  const Datasets data = open_datasets(options("all", 2));
  EXPECT_EQ(image_shape(*data.training).channels, 3);
  EXPECT_EQ(data.training->length(), 12);
  EXPECT_EQ(data.validation->length(), 12);
  EXPECT_THAT(tokens_of(*data.training, 0, 0), Each(10));
  EXPECT_THAT(tokens_of(*data.training, 14, 1),
              ElementsAre(200, 100, 50, 200, 100, 50, 200, 100, 50, 200, 100, 50));
}

#ifdef LINNET_TURBOJPEG
TEST_F(ImageFolders, HoldJpegFilesBesideOthers) {
  animals("all");
  const Image even{.width = 3, .height = 2, .channels = 1, .pixels = std::vector<std::uint8_t>(6, 77)};
  folder.file("all/cats/aa.jpg", encoded_jpeg(even));
  folder.file("all/dogs/b.JPEG", encoded_jpeg(even));
  folder.file("all/dogs/c.png", encoded_jpeg(even));
  const ImageFolder listed = list_images(folder / "all");
  EXPECT_EQ(listed.files.size(), 18u);
  EXPECT_EQ(listed.files[12].path.filename(), "aa.jpg");
  const Datasets data = open_datasets(options("all"));
  EXPECT_EQ(data.training->length(), 6);
  EXPECT_THAT(tokens_of(*data.training, 11, 0), Each(77));
  EXPECT_THAT(tokens_of(*data.training, 15, 1), Each(77));
  EXPECT_THAT(tokens_of(*data.training, 16, 1), Each(77));
  const std::string whole = encoded_jpeg(even);
  const std::filesystem::path broken =
      folder.file("all/dogs/d.jpg", std::string_view(whole).substr(0, whole.size() - 2));
  EXPECT_THAT(refusal(options("all")), AllOf(HasSubstr(broken.string()), HasSubstr("damaged")));
}
#endif

TEST_F(ImageFolders, OfDifferentSizesNeedASize) {
  animals("all");
  image("all/dogs/z.png", {1}, 4, 5);
  EXPECT_THAT(refusal(options("all")), AllOf(HasSubstr("cats/00.png of 2 × 3"),
                                             HasSubstr("dogs/z.png of 4 × 5"), HasSubstr("data.size")));
  EXPECT_NO_THROW(open_datasets(options("all", 2)));
  EXPECT_THAT(refusal(options("all", 3)),
              AllOf(HasSubstr("cats/00.png"), HasSubstr("data.size = 3"), HasSubstr("2 × 3")));
  EXPECT_THAT(refusal(options("all", -1)), HasSubstr("got -1"));
}

TEST_F(ImageFolders, MayHaveNoClasses) {
  for (int i = 0; i < 10; ++i) image(fmt::format("all/{}.png", i), {static_cast<std::uint8_t>(i)});
  const Datasets data = open_datasets(options("all"));
  EXPECT_EQ(data.training->classes(), 0);
  EXPECT_THAT(tokens_of(*data.validation, 0, -1), Each(9));
  EXPECT_TRUE(has_images(folder / "all"));
  EXPECT_TRUE(has_images(folder.path()));
  const std::filesystem::path inside = image("all/cats/0.png", {1});
  EXPECT_THAT(refusal(options("all")), AllOf(HasSubstr("got both"), HasSubstr(inside.string())));
}

TEST_F(ImageFolders, WithNamesOfClassesMayHaveNone) {
  const std::filesystem::path one = image("new/a.png", {7});
  image("new/b.png", {8});
  image("some/dogs/a.png", {9});
  DataOptions given = options("missing");
  given.class_names = {"dogs", "cats"};
  for (const auto& [source, label, pixel, size] :
       {std::tuple("new", -1, 7, 2), {"new/b.png", -1, 8, 1}, {"some", 0, 9, 1}}) {
    given.test = folder / source;
    const auto set = open_dataset(given, Split::test);
    EXPECT_EQ(set->size(), size) << source;
    EXPECT_EQ(set->classes(), 2);
    EXPECT_THAT(tokens_of(*set, 0, label), Each(pixel));
  }
  image("some/mice/a.png", {9});
  EXPECT_THAT(error_of([&] { open_dataset(given, Split::test); }),
              AllOf(HasSubstr("2 classes of the model"), HasSubstr("\"mice\"")));
  EXPECT_EQ(list_images(one).files.size(), 1u);
  EXPECT_EQ(list_images((folder / "new/*.png").string()).files.size(), 2u);
}

TEST_F(ImageFolders, HaveTheChannelsThatAreWanted) {
  image("grey/a.png", {7});
  image("colour/a.png", {7, 7, 7});
  image("red/a.png", {7, 0, 0});
  DataOptions given = options("grey");
  given.labels = false;
  for (const std::int64_t channels : {1, 3})
    for (const char* source : {"grey", "colour"}) {
      given.channels = channels;
      given.test = folder / source;
      const auto set = open_dataset(given, Split::test);
      EXPECT_EQ(image_shape(*set).channels, channels) << source;
      EXPECT_THAT(tokens_of(*set, 0, -1), Each(7)) << source;
    }
  given.test = folder / "red";
  EXPECT_EQ(image_shape(*open_dataset(given, Split::test)).channels, 3);
  given.channels = 1;
  EXPECT_THAT(error_of([&] { open_dataset(given, Split::test); }),
              AllOf(HasSubstr("red/a.png"), HasSubstr("expected a grey image")));
}

TEST_F(ImageFolders, WithoutWhatTheyNeedAreErrors) {
  EXPECT_THAT(error_of<UsageError>([&] { open_datasets({.kind = "images", .size = 0}); }),
              HasSubstr("data.path"));
  EXPECT_THAT(refusal(options("none")), HasSubstr("none"));
  std::filesystem::create_directories(folder / "empty");
  EXPECT_FALSE(has_images(folder / "empty"));
  EXPECT_THAT(refusal(options("empty")), AllOf(HasSubstr("empty"), HasSubstr("got none")));
  image("few/cats/0.png", {1});
  EXPECT_THAT(refusal(options("few")), HasSubstr("at least 10 images of a class"));
  animals("all");
  folder.file("all/cats/05.png", "no picture");
  EXPECT_THAT(refusal(options("all")), AllOf(HasSubstr("05.png"), HasSubstr("PNG file")));
  DataOptions levels = options("few");
  levels.validation = levels.path;
  levels.levels = 1;
  EXPECT_THAT(refusal(levels), HasSubstr("levels"));
}

}  // namespace
}  // namespace linnet
