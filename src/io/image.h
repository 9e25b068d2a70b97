#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace linnet {

/// Eight-bit picture: rows from the top, `channels` bytes a pixel (1 grey, 3 red-green-blue).
struct Image {
  std::int64_t width = 0, height = 0, channels = 1;
  std::vector<std::uint8_t> pixels;
};

/// The most pixels of a picture that is read or written. A small file may hold very many.
inline constexpr std::int64_t most_image_pixels = std::int64_t{1} << 25;

/// Whether a file is one of pictures by its extension, in small or capital letters: .png, .jpg or .jpeg.
bool is_image_file(const std::filesystem::path& path);

/// Reads a PNG or JPEG file, which of the two its first bytes say. Throws as `read_png` and `read_jpeg` do.
Image read_image(const std::filesystem::path& path);

/// The size and the channels of an image as `read_image` gives it, without its pixels.
Image read_image_header(const std::filesystem::path& path);

}  // namespace linnet
