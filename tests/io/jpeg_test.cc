#include "io/jpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#ifdef LINNET_TURBOJPEG
#include "io/encoded_jpeg.h"
#endif
#include "io/file.h"
#include "io/png.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ImageFiles, AreKnownByTheirExtensions) {
  for (const char* name : {"a.png", "b/c.JPG", "d.jpeg", "e.PNG"}) EXPECT_TRUE(is_image_file(name)) << name;
  for (const char* name : {"png", "a.gif", "a.jpg.txt", "a.jpe", "jpeg/a"}) EXPECT_FALSE(is_image_file(name));
}

#ifdef LINNET_TURBOJPEG

// A smooth picture: what JPEG is made for.
Image slope(std::int64_t width, std::int64_t height, std::int64_t channels) {
  Image image{width, height, channels, {}};
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < channels; ++c)
        image.pixels.push_back(static_cast<std::uint8_t>(20 + 3 * x + 2 * y + 40 * c));
  return image;
}

TEST(Jpeg, ReadsGreyAndColour) {
  const TemporaryFolder folder;
  for (const std::int64_t channels : {1, 3}) {
    for (const auto& [width, height] : {std::pair{1, 1}, {7, 13}, {30, 20}}) {
      for (const bool progressive : {false, true}) {
        const Image image = slope(width, height, channels);
        const auto path = folder.file("image.jpg", encoded_jpeg(image, progressive));
        const Image read = read_jpeg(path), header = read_jpeg_header(path);
        EXPECT_EQ(header.width, width);
        EXPECT_EQ(header.height, height);
        EXPECT_EQ(header.channels, channels);
        EXPECT_TRUE(header.pixels.empty());
        EXPECT_EQ(read.width, width);
        EXPECT_EQ(read.height, height);
        EXPECT_EQ(read.channels, channels);
        ASSERT_EQ(read.pixels.size(), image.pixels.size());
        for (std::size_t i = 0; i < read.pixels.size(); ++i)
          ASSERT_NEAR(read.pixels[i], image.pixels[i], 8) << i;
      }
    }
  }
}

TEST(Jpeg, TheContentsOfAFileDecideItsFormat) {
  const TemporaryFolder folder;
  const Image image = slope(9, 5, 3);
  const auto jpeg = folder.file("jpeg.png", encoded_jpeg(image));
  EXPECT_EQ(read_image(jpeg).pixels, read_jpeg(jpeg).pixels);
  EXPECT_EQ(read_image_header(jpeg).width, 9);
  write_png(folder / "png.jpg", image);
  EXPECT_EQ(read_image(folder / "png.jpg").pixels, image.pixels);
  EXPECT_EQ(read_image_header(folder / "png.jpg").height, 5);
}

// A segment that decoders pass over.
std::string comment(std::size_t length) {
  std::string bytes = "\xff\xfe";
  bytes += static_cast<char>((length + 2) >> 8);
  bytes += static_cast<char>((length + 2) & 255);
  return bytes + std::string(length, 'c');
}

TEST(Jpeg, LongCommentsAndStrayBytesArePassedOver) {
  const TemporaryFolder folder;
  const Image image = slope(16, 8, 3);
  const std::string whole = encoded_jpeg(image);
  const std::vector<std::uint8_t> pixels = read_jpeg(folder.file("whole.jpg", whole)).pixels;
  std::string long_comments = whole;
  for (int i = 0; i < 3; ++i) long_comments.insert(2, comment(60'000));
  const auto path = folder.file("long.jpg", long_comments);
  EXPECT_EQ(read_jpeg_header(path).width, 16);
  EXPECT_EQ(read_jpeg(path).pixels, pixels);
  std::string stray = whole;
  stray.insert(stray.size() - 2, "stray");
  EXPECT_EQ(read_jpeg(folder.file("stray.jpg", stray)).pixels, pixels);
  EXPECT_EQ(read_jpeg(folder.file("behind.jpg", whole + "behind")).pixels, pixels);
}

TEST(Jpeg, EveryTruncationOfThePixelsIsAnErrorAndNoDamagedByteCrashes) {
  const TemporaryFolder folder;
  const std::string whole = encoded_jpeg(slope(24, 17, 3));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(read_jpeg(folder.file("cut.jpg", whole.substr(0, size))), Error) << size;
  EXPECT_THAT(error_of([&] { read_jpeg(folder.file("cut.jpg", whole.substr(0, whole.size() / 2))); }),
              HasSubstr("cut.jpg"));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      try {
        const Image image = read_jpeg(folder.file("damaged.jpg", damaged));
        EXPECT_EQ(std::ssize(image.pixels), image.width * image.height * image.channels);
      } catch (const Error&) {
      }
    }
  }
}

TEST(Jpeg, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { read_jpeg(folder.file("a.jpg", "\xff\xd8 but no JPEG")); }),
              HasSubstr("a.jpg: expected a JPEG file, got none"));
  EXPECT_THAT(error_of([&] { read_image(folder / "missing.jpg"); }), HasSubstr("missing.jpg"));
  EXPECT_THAT(error_of([&] { read_image(folder.file("empty.jpg", "")); }), HasSubstr("empty.jpg"));
  EXPECT_THAT(error_of([&] { read_image_header(folder.file("inks.jpg", encoded_inks())); }),
              HasSubstr("inks.jpg: expected grey or colour, got the four inks of a printer"));
  // The header of a picture of 65,500 × 65,500 pixels.
  std::string huge = encoded_jpeg(slope(8, 8, 1));
  const std::size_t size = huge.find("\xff\xc0") + 5;
  for (const std::size_t i : {0, 2}) huge.replace(size + i, 2, "\xff\xdc");
  EXPECT_THAT(error_of([&] { read_image(folder.file("huge.jpg", huge)); }),
              AllOf(HasSubstr("at most 33554432 pixels"), HasSubstr("got 65500 × 65500")));
}

#else

TEST(Jpeg, IsRefusedWithoutItsLibrary) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of<UsageError>([&] { read_image(folder.file("a.jpg", "\xff\xd8")); }),
              AllOf(HasSubstr("libjpeg-turbo"), HasSubstr("a.jpg")));
}

#endif

}  // namespace
}  // namespace linnet
