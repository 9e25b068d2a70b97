#pragma once

#include <turbojpeg.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/image.h"

namespace linnet {

/// A JPEG file of these pixels, in one of libjpeg-turbo's formats.
inline std::string encoded_jpeg(const std::uint8_t* pixels, int width, int height, TJPF format,
                                TJSAMP sampling, bool progressive) {
  const std::unique_ptr<void, int (*)(void*)> encoder(tjInitCompress(), tjDestroy);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  constexpr int quality = 95;
  if (encoder == nullptr || tjCompress2(encoder.get(), pixels, width, 0, height, format, &bytes, &size,
                                        sampling, quality, progressive ? TJFLAG_PROGRESSIVE : 0) != 0)
    throw std::runtime_error("expected a JPEG file, got none");
  const std::string result(reinterpret_cast<const char*>(bytes), size);
  tjFree(bytes);
  return result;
}

/// A JPEG file of a grey image or one in colour.
inline std::string encoded_jpeg(const Image& image, bool progressive = false) {
  const bool grey = image.channels == 1;
  return encoded_jpeg(image.pixels.data(), static_cast<int>(image.width), static_cast<int>(image.height),
                      grey ? TJPF_GRAY : TJPF_RGB, grey ? TJSAMP_GRAY : TJSAMP_444, progressive);
}

/// A JPEG file of four inks, as printers take it.
inline std::string encoded_inks() {
  const std::vector<std::uint8_t> inks(std::size_t{4} * 8 * 8, 100);
  return encoded_jpeg(inks.data(), 8, 8, TJPF_CMYK, TJSAMP_444, false);
}

}  // namespace linnet
