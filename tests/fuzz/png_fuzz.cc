// A PNG file whose chunks get their lengths and checksums right, or with an odd first byte as it is. What is
// read is laid out in a grid, written and read again.

#include <zlib.h>

#include <algorithm>

#include "base/fail.h"
#include "fuzz.h"
#include "io/file.h"
#include "io/png.h"

namespace linnet::fuzz {
namespace {

constexpr std::string_view signature = "\x89PNG\r\n\x1a\n";

std::string big_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string chunk(std::string_view type, std::string_view content) {
  const std::string checked = std::string(type) + std::string(content);
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size());
  return big_endian(content.size()) + checked + big_endian(crc);
}

/// The file with right checksums. A chunk that says that it is longer than the file takes the rest of it.
std::string repaired(std::string_view file) {
  constexpr std::size_t around = 12;  // length, type and checksum
  std::string result(signature);
  file.remove_prefix(std::min(file.size(), signature.size()));
  while (file.size() >= around) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<std::uint8_t>(file[i]);
    length = std::min(length, file.size() - around);
    result += chunk(file.substr(4, 4), file.substr(8, length));
    file.remove_prefix(length + around);
  }
  return result;
}

std::string compressed(std::string_view bytes) {
  uLongf size = compressBound(bytes.size());
  std::string result(size, '\0');
  compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
           bytes.size());
  result.resize(size);
  return result;
}

/// A picture of 5 × 3 pixels of that depth and type, each row as it is (filter 0).
std::string picture(int depth, int type, int channels, bool interlaced, const std::string& extra) {
  const std::string header =
      big_endian(5) + big_endian(3) +
      std::string{static_cast<char>(depth), static_cast<char>(type), 0, 0, static_cast<char>(interlaced)};
  // The passes of an interlaced picture of this size have 7 rows, of 1 to 5 pixels each.
  std::string rows;
  const auto row = [&](int pixels) {
    rows += '\0';
    for (int i = 0; i < (pixels * channels * depth + 7) / 8; ++i) rows += static_cast<char>(i * 37);
  };
  if (interlaced)
    for (const int pixels : {1, 1, 1, 3, 2, 2, 5}) row(pixels);
  else
    for (int y = 0; y < 3; ++y) row(5);
  return std::string(signature) + chunk("IHDR", header) + extra + chunk("IDAT", compressed(rows)) +
         chunk("IEND", "");
}

}  // namespace

void answer(std::string_view input) {
  const bool repair = take_choice(input) % 2 == 0;
  const auto path = empty_folder() / "input.png";
  put(path, repair ? repaired(input) : std::string(input));
  const Image image = read_png(path);
  if (std::ssize(image.pixels) != image.width * image.height * image.channels)
    report("expected as many bytes as the size says");
  if (image.pixels.size() > 1 << 16) return;
  const Image pictures[] = {image, image};
  const Image all = grid(pictures, 2, 2, 1);
  write_png(path, all);
  if (read_again([&] { return read_png(path); }).pixels != all.pixels)
    report("expected a picture that is written to be read as it was");
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  const std::string palette = chunk("PLTE", std::string("\0\x7f\xff\x01\x02\x03", 6));
  const std::string files[] = {
      picture(8, 0, 1, false, ""),
      picture(1, 0, 1, false, ""),
      picture(16, 0, 1, false, chunk("gAMA", big_endian(45455))),
      picture(8, 2, 3, false, chunk("tRNS", std::string(6, '\0'))),
      picture(16, 6, 4, false, chunk("tEXt", std::string("Title\0x", 7))),
      picture(8, 4, 2, false, chunk("bKGD", std::string(2, '\0'))),
      picture(8, 6, 4, true, ""),
      picture(1, 3, 1, false, palette + chunk("tRNS", "\x80")),
      picture(16, 2, 3, true, chunk("sRGB", std::string(1, '\0'))),
  };
  for (const std::string& file : files) {
    result.push_back(with_choice(0, file));
    result.push_back(with_choice(1, file));
  }
  return result;
}

std::vector<std::string> words() {
  return {"IHDR", "IDAT", "IEND", "PLTE",     "tRNS",
          "gAMA", "cHRM", "sRGB", "iCCP",     "bKGD",
          "sBIT", "zTXt", "iTXt", "\x10\x06", std::string("\0\0\0\x01", 4)};
}

}  // namespace linnet::fuzz
