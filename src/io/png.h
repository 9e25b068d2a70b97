#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "io/image.h"

namespace linnet {

/// Writes a PNG file, atomically (io/file.h). Throws Error when the image is empty, has more than 2^25
/// pixels, or its sizes do not fit its pixels.
void write_png(const std::filesystem::path& path, const Image& image);

/// Reads a PNG file of at most 2^25 pixels of up to 8 bits or 2^24 of 16, which takes about a second: grey
/// ones with one channel, all others with three, 16 bits rounded to 8. Brightness is that of sRGB: a file
/// with a gamma of its own (gAMA) is converted, one that says nothing stays as it is. Transparent parts are
/// laid on white, and those that let some light through are mixed with it in linear light. Throws Error when
/// it has more pixels, is truncated, damaged or no PNG file.
Image read_png(const std::filesystem::path& path);

/// The size and the channels of a PNG file as `read_png` gives it, without its pixels. Throws as `read_png`
/// does, but reads nothing behind the header.
Image read_png_header(const std::filesystem::path& path);

/// Where images stand in a grid, in pixels.
struct GridLayout {
  std::int64_t columns;
  std::int64_t cell_width, cell_height;  ///< of an image and one gap
  std::int64_t width, height;            ///< of the whole picture
};

/// Throws UsageError for a picture with more pixels than `read_png` takes, and for impossible sizes.
GridLayout grid_layout(std::int64_t count, std::int64_t width, std::int64_t height, std::int64_t columns,
                       std::int64_t scale = 1, std::int64_t gap = 2);

/// Lays images of one size out in rows of `columns`, each pixel `scale` × `scale`, with light-grey gaps of
/// `gap` pixels between and around them; cells of the last row that have no image stay light grey. Throws as
/// `grid_layout` does, and for no image or images of several sizes.
Image grid(std::span<const Image> images, std::int64_t columns, std::int64_t scale = 1, std::int64_t gap = 2);

}  // namespace linnet
