#include "io/png.h"

#include <png.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/fail.h"
#include "io/file.h"
#include "linnet/tensor.h"

namespace linnet {
namespace {

// libpng reads some 10^7 pixels of 16 bits in a second.
constexpr std::int64_t most_deep_pixels = std::int64_t{1} << 24;

// libpng's simplified interface keeps its state in one struct and reports errors in it.
struct Codec : png_image {
  Codec() : png_image{} { version = PNG_IMAGE_VERSION; }
  ~Codec() { png_image_free(this); }
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
};

void check(const char* operation, const Image& image) {
  if (image.channels != 1 && image.channels != 3)
    fail(operation, "expected an image of 1 or 3 channels, got {}", image.channels);
  if (image.width < 1 || image.height < 1 || image.width > most_image_pixels / image.height)
    fail(operation, "expected an image of 1 to {} pixels, got {} × {}", most_image_pixels, image.width,
         image.height);
  const std::int64_t bytes = image.width * image.height * image.channels;
  if (image.pixels.size() != static_cast<std::size_t>(bytes))
    fail(operation, "expected {} bytes for {} × {} × {}, got {}", bytes, image.width, image.height,
         image.channels, image.pixels.size());
}

// Of a file whose reading has begun.
Image header_of(const Codec& codec, const std::filesystem::path& path) {
  const bool deep = (codec.format & PNG_FORMAT_FLAG_LINEAR) != 0;
  const std::int64_t most = deep ? most_deep_pixels : most_image_pixels;
  if (codec.width > most / std::max<png_uint_32>(codec.height, 1))
    fail("read_png", "{}: expected at most {} pixels{}, got {} × {}", path.string(), most,
         deep ? " of 16 bits" : "", codec.width, codec.height);
  Image image;
  image.width = codec.width;
  image.height = codec.height;
  image.channels = (codec.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1;
  return image;
}

}  // namespace

void write_png(const std::filesystem::path& path, const Image& image) {
  check("write_png", image);
  Codec codec;
  codec.width = static_cast<png_uint_32>(image.width);
  codec.height = static_cast<png_uint_32>(image.height);
  codec.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(codec), '\0');
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&codec, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr) == 0)
    fail("write_png", "{}: {}", path.string(), codec.message);
  bytes.resize(size);
  write_file_atomically(path, bytes);
}

Image read_png(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  Codec codec;
  if (png_image_begin_read_from_memory(&codec, bytes.data(), bytes.size()) == 0)
    fail("read_png", "{}: expected a PNG file, got {} bytes that are none ({})", path.string(), bytes.size(),
         codec.message);
  codec.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits, like 8, are linear only where the file says so
  Image image = header_of(codec, path);
  image.pixels.resize(static_cast<std::size_t>(image.width * image.height * image.channels));
  codec.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const png_color white = {255, 255, 255};
  if (png_image_finish_read(&codec, &white, image.pixels.data(), 0, nullptr) == 0)
    fail("read_png", "{}: expected a whole PNG file, got one that is damaged ({})", path.string(),
         codec.message);
  return image;
}

Image read_png_header(const std::filesystem::path& path) {
  Codec codec;
  if (png_image_begin_read_from_file(&codec, path.c_str()) == 0)
    fail("read_png", "{}: expected a PNG file, got none ({})", path.string(), codec.message);
  return header_of(codec, path);
}

GridLayout grid_layout(std::int64_t count, std::int64_t width, std::int64_t height, std::int64_t columns,
                       std::int64_t scale, std::int64_t gap) {
  if (count < 1 || columns < 1 || scale < 1 || gap < 0)
    fail<UsageError>("grid", "expected at least 1 image, 1 column, scale 1 and gap 0, got {}, {}, {} and {}",
                     count, columns, scale, gap);
  if (scale > most_image_pixels || gap > most_image_pixels)
    fail<UsageError>("grid", "expected a picture of at most {} pixels, got scale {} and gap {}",
                     most_image_pixels, scale, gap);
  columns = std::min(columns, count);
  const std::int64_t rows = (count + columns - 1) / columns;
  const std::int64_t cell_width = width * scale + gap, cell_height = height * scale + gap;
  if (checked_size(Shape{rows, cell_height}) + gap >
      most_image_pixels / (checked_size(Shape{columns, cell_width}) + gap))
    fail<UsageError>("grid", "expected a picture of at most {} pixels, got {} rows and {} columns of {} × {}",
                     most_image_pixels, rows, columns, cell_width, cell_height);
  return {.columns = columns,
          .cell_width = cell_width,
          .cell_height = cell_height,
          .width = columns * cell_width + gap,
          .height = rows * cell_height + gap};
}

Image grid(std::span<const Image> images, std::int64_t columns, std::int64_t scale, std::int64_t gap) {
  constexpr std::uint8_t light_grey = 220;
  if (images.empty()) fail("grid", "expected at least one image, got none");
  const Image& first = images[0];
  for (const Image& image : images) {
    check("grid", image);
    if (image.width != first.width || image.height != first.height || image.channels != first.channels)
      fail("grid", "expected images of one size, {} × {} × {}, got {} × {} × {}", first.width, first.height,
           first.channels, image.width, image.height, image.channels);
  }
  const std::int64_t count = std::ssize(images);
  const GridLayout layout = grid_layout(count, first.width, first.height, columns, scale, gap);
  Image result{.width = layout.width, .height = layout.height, .channels = first.channels, .pixels = {}};
  const std::int64_t channels = first.channels;
  result.pixels.assign(static_cast<std::size_t>(result.width * result.height * channels), light_grey);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint8_t* source = images[static_cast<std::size_t>(i)].pixels.data();
    const std::int64_t left = i % layout.columns * layout.cell_width + gap;
    const std::int64_t top = i / layout.columns * layout.cell_height + gap;
    for (std::int64_t y = 0; y < first.height * scale; ++y)
      for (std::int64_t x = 0; x < first.width * scale; ++x)
        std::memcpy(
            &result.pixels[static_cast<std::size_t>(((top + y) * result.width + left + x) * channels)],
            source + (y / scale * first.width + x / scale) * channels, static_cast<std::size_t>(channels));
  }
  return result;
}

}  // namespace linnet
