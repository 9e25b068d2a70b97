#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

/// A NumPy file of that version with a header of this text, padded to 64 bytes as NumPy does, and data.
inline std::string npy_file(std::string_view header, std::string_view data, int version = 1) {
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::string text(header);
  while ((6 + 2 + length_bytes + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (std::size_t i = 0; i < length_bytes; ++i) bytes += static_cast<char>(text.size() >> (8 * i));
  return bytes + text + std::string(data);
}

}  // namespace linnet
