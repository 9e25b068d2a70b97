#include "io/png.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include "io/file.h"
#include "io/temporary_folder.h"

namespace linnet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

Image pattern(std::int64_t width, std::int64_t height, std::int64_t channels) {
  Image image{width, height, channels,
              std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * channels))};
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(i * 37 + i / 11);
  return image;
}

TEST(Png, RoundTripsGreyAndColour) {
  const TemporaryFolder folder;
  for (const std::int64_t channels : {1, 3}) {
    for (const std::int64_t width : {1, 7, 64}) {
      const Image image = pattern(width, 13, channels);
      write_png(folder / "image.png", image);
      const Image read = read_png(folder / "image.png"), header = read_png_header(folder / "image.png");
      EXPECT_EQ(header.width, read.width);
      EXPECT_EQ(header.height, read.height);
      EXPECT_EQ(header.channels, read.channels);
      EXPECT_TRUE(header.pixels.empty());
      EXPECT_EQ(read.width, width);
      EXPECT_EQ(read.height, 13);
      EXPECT_EQ(read.channels, channels);
      EXPECT_EQ(read.pixels, image.pixels);
    }
  }
}

// Writes pixels of another of libpng's formats.
void write_format(const std::filesystem::path& path, png_uint_32 format, const void* pixels,
                  const void* colours = nullptr) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 2;
  image.height = 1;
  image.format = format;
  image.colormap_entries = 2;
  ASSERT_NE(png_image_write_to_file(&image, path.c_str(), 0, pixels, 0, colours), 0) << image.message;
}

TEST(Png, ConvertsOtherKinds) {
  const TemporaryFolder folder;
  const std::uint8_t transparent[] = {10, 20, 30, 255, 10, 20, 30, 0};
  write_format(folder / "rgba.png", PNG_FORMAT_RGBA, transparent);
  EXPECT_THAT(read_png(folder / "rgba.png").pixels, ElementsAre(10, 20, 30, 255, 255, 255));
  const std::uint16_t linear[] = {0, 65535};
  write_format(folder / "grey16.png", PNG_FORMAT_LINEAR_Y, linear);
  EXPECT_THAT(read_png(folder / "grey16.png").pixels, ElementsAre(0, 255));
  EXPECT_EQ(read_png(folder / "grey16.png").channels, 1);
  const std::uint8_t indices[] = {1, 0};
  const std::uint8_t colours[] = {1, 2, 3, 200, 100, 50};
  write_format(folder / "palette.png", PNG_FORMAT_RGB_COLORMAP, indices, colours);
  EXPECT_THAT(read_png(folder / "palette.png").pixels, ElementsAre(200, 100, 50, 1, 2, 3));
}

// Removes a chunk from the bytes of a PNG file.
void remove_chunk(std::string& bytes, const std::string& type) {
  const std::size_t name = bytes.find(type);
  ASSERT_NE(name, std::string::npos) << type;
  std::size_t length = 0;
  for (std::size_t i = name - 4; i < name; ++i) length = length << 8 | static_cast<std::uint8_t>(bytes[i]);
  bytes.erase(name - 4, length + 12);
}

TEST(Png, KeepsTheBrightnessOfSixteenBitsWithoutGamma) {
  const TemporaryFolder folder;
  for (const auto& [dark, light] :
       {std::pair(0, 0x2000), std::pair(0x4000, 0x8000), std::pair(0xc000, 0xffff)}) {
    const std::uint16_t grey[] = {static_cast<std::uint16_t>(dark), static_cast<std::uint16_t>(light)};
    write_format(folder / "linear.png", PNG_FORMAT_LINEAR_Y, grey);
    std::string bytes = read_file(folder / "linear.png");
    remove_chunk(bytes, "gAMA");
    const std::vector<std::uint8_t> pixels = read_png(folder.file("plain.png", bytes)).pixels;
    ASSERT_EQ(pixels.size(), 2u);
    for (const std::size_t i : {0, 1}) EXPECT_NEAR(pixels[i], grey[i] * 255.0 / 65535, 0.51) << grey[i];
  }
}

// Converters of colours differ a little.
MATCHER(Near, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= 2; }

TEST(Png, ConvertsLinearLightToThatOfTheScreen) {
  const TemporaryFolder folder;
  const std::uint16_t linear[] = {0x4000, 0x8000};
  write_format(folder / "linear.png", PNG_FORMAT_LINEAR_Y, linear);
  EXPECT_THAT(read_png(folder / "linear.png").pixels, Pointwise(Near(), {137, 188}));
  const std::uint8_t half[] = {0, 0, 0, 128, 255, 255, 255, 128};
  write_format(folder / "half.png", PNG_FORMAT_RGBA, half);
  EXPECT_THAT(read_png(folder / "half.png").pixels, Pointwise(Near(), {188, 188, 188, 255, 255, 255}));
}

TEST(Png, EveryTruncationOfThePixelsIsAnErrorAndNoDamagedByteCrashes) {
  const TemporaryFolder folder;
  write_png(folder / "whole.png", pattern(5, 4, 1));
  const std::string whole = read_file(folder / "whole.png");
  const std::size_t end = whole.size() - 16;  // without the checksum of the pixels and the end mark
  for (std::size_t size = 0; size < end; ++size)
    EXPECT_THROW(read_png(folder.file("cut.png", whole.substr(0, size))), Error) << size;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      try {
        const Image image = read_png(folder.file("damaged.png", damaged));
        EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(image.width * image.height * image.channels));
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("damaged.png"));
      }
    }
  }
}

TEST(Png, HeadersOfMissingFilesAndOtherFilesAreErrors) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { read_png_header(folder / "none.png"); }), testing::HasSubstr("none.png"));
  EXPECT_THAT(error_of([&] { read_png_header(folder.file("text.png", "text")); }),
              testing::AllOf(testing::HasSubstr("text.png"), testing::HasSubstr("expected a PNG file")));
}

TEST(Png, RefusesHugeAndContradictorySizes) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { write_png(folder / "a", {2, 2, 1, {1, 2, 3}}); }), HasSubstr("4 bytes"));
  EXPECT_THAT(error_of([&] { write_png(folder / "a", {2, 2, 2, {}}); }), HasSubstr("channels"));
  EXPECT_THAT(error_of([&] { write_png(folder / "a", {0, 2, 1, {}}); }), HasSubstr("0 × 2"));
  EXPECT_THAT(error_of([&] {
                write_png(folder / "a", {std::int64_t{1} << 62, 4, 1, {}});
              }),
              HasSubstr("pixels"));
  EXPECT_EQ(folder.entries(), 0);
}

// A file of a hundred kilobytes may hold that many.
TEST(Png, RefusesMorePixelsThanASecondReads) {
  const TemporaryFolder folder;
  const std::uint16_t deep[] = {0, 65535};
  const std::uint8_t flat[] = {0, 255};
  write_format(folder / "deep.png", PNG_FORMAT_LINEAR_Y, deep);
  write_format(folder / "flat.png", PNG_FORMAT_GRAY, flat);
  constexpr std::size_t header = 12, size = 4, checked = 17;  // type, sizes and the other members of IHDR
  for (const auto& [name, sides] :
       {std::pair("deep.png", std::pair(4097, 4096)), std::pair("flat.png", std::pair(8192, 4097))}) {
    std::string bytes = read_file(folder / name);
    const auto write = [&](std::size_t at, std::uint32_t value) {
      for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(value >> (24 - 8 * i));
    };
    write(header + size, static_cast<std::uint32_t>(sides.first));
    write(header + 2 * size, static_cast<std::uint32_t>(sides.second));
    write(header + checked, static_cast<std::uint32_t>(
                                crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()) + header, checked)));
    const std::string message = error_of([&] { read_png(folder.file("large.png", bytes)); });
    EXPECT_EQ(error_of([&] { read_png_header(folder / "large.png"); }), message);
    EXPECT_THAT(message, HasSubstr(fmt::format("{} × {}", sides.first, sides.second)));
    EXPECT_THAT(message, HasSubstr("at most"));
  }
}

TEST(Grid, LaysImagesOut) {
  const Image a{1, 1, 1, {10}}, b{1, 1, 1, {20}}, c{1, 1, 1, {30}};
  const std::vector<Image> images = {a, b, c};
  const Image laid = grid(images, 2, 1, 1);
  EXPECT_EQ(laid.width, 5);
  EXPECT_EQ(laid.height, 5);
  const int g = 220;
  EXPECT_THAT(laid.pixels,
              ElementsAre(g, g, g, g, g, g, 10, g, 20, g, g, g, g, g, g, g, 30, g, g, g, g, g, g, g, g));
  const Image scaled = grid(std::span(images).first(1), 4, 2, 0);
  EXPECT_EQ(scaled.width, 2);
  EXPECT_THAT(scaled.pixels, ElementsAre(10, 10, 10, 10));
  const std::vector<Image> colours = {{1, 1, 3, {1, 2, 3}}, {1, 1, 3, {4, 5, 6}}};
  EXPECT_THAT(grid(colours, 2, 1, 0).pixels, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Grid, RefusesWhatDoesNotFit) {
  const std::vector<Image> images = {{1, 1, 1, {1}}, {1, 2, 1, {1, 2}}};
  EXPECT_THROW(grid({}, 1), Error);
  EXPECT_THROW(grid(images, 2), Error);
  EXPECT_THROW(grid(std::span(images).first(1), 0), UsageError);
  EXPECT_THROW(grid(std::span(images).first(1), 1, std::int64_t{1} << 40), UsageError);
  EXPECT_THROW(grid(std::span(images).first(1), 1, 1 << 14), UsageError);
  EXPECT_THROW(grid_layout(0, 1, 1, 1), UsageError);
  EXPECT_THROW(grid_layout(-1, 1, 1, 1), UsageError);
  // A picture that is written can be read.
  EXPECT_EQ(grid_layout(1, 1 << 13, 1 << 12, 1, 1, 0).width, 1 << 13);
  EXPECT_THROW(grid_layout(1, 1 << 13, (1 << 12) + 1, 1, 1, 0), UsageError);
}

}  // namespace
}  // namespace linnet
