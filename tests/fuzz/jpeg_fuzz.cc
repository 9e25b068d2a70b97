// A JPEG file. Its header and its pixels have to agree.

#include "fuzz.h"
#include "io/encoded_jpeg.h"
#include "io/jpeg.h"

namespace linnet::fuzz {

void answer(std::string_view input) {
  const auto path = empty_folder() / "input.jpg";
  put(path, std::string(input));
  const Image image = read_jpeg(path);
  if (std::ssize(image.pixels) != image.width * image.height * image.channels)
    report("expected as many bytes as the size says");
  const Image header = read_again([&] { return read_jpeg_header(path); });
  if (header.width != image.width || header.height != image.height || header.channels != image.channels)
    report("expected a header that says what the pixels are");
}

std::vector<std::string> seeds() {
  std::vector<std::string> result;
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 17 * 9 * 3; ++i) pixels.push_back(static_cast<std::uint8_t>(i * 37 % 251));
  for (const bool progressive : {false, true}) {
    result.push_back(encoded_jpeg(pixels.data(), 17, 9, TJPF_GRAY, TJSAMP_GRAY, progressive));
    for (const TJSAMP sampling : {TJSAMP_444, TJSAMP_420, TJSAMP_411})
      result.push_back(encoded_jpeg(pixels.data(), 17, 9, TJPF_RGB, sampling, progressive));
  }
  return result;
}

std::vector<std::string> words() {
  std::vector<std::string> result;
  // The marks that begin the parts of a file: frames, tables, restarts, scans, comments, of applications.
  for (const int mark :
       {0xc0, 0xc1, 0xc2, 0xc4, 0xc9, 0xd0, 0xd7, 0xd8, 0xd9, 0xda, 0xdb, 0xdd, 0xe0, 0xee, 0xfe})
    result.push_back({'\xff', static_cast<char>(mark)});
  return result;
}

}  // namespace linnet::fuzz
