#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace linnet {

/// Bytes that a test puts together as a page describes them, number by number, the lowest byte first.
class LittleEndian {
 public:
  LittleEndian& text(std::string_view letters) {
    bytes_ += letters;
    return *this;
  }

  template <class T>
  LittleEndian& add(std::type_identity_t<T> value) {
    std::uint64_t bits = 0;
    if constexpr (std::is_same_v<T, double>)
      bits = std::bit_cast<std::uint64_t>(value);
    else
      bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes_ += static_cast<char>((bits >> (8 * i)) & 0xff);
    return *this;
  }

  LittleEndian& add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) bytes_ += static_cast<char>(byte);
    return *this;
  }

  /// The CRC-32 of all so far, bit by bit, in 8 bytes.
  LittleEndian& add_crc32() {
    std::uint32_t rest = 0xffffffff;
    for (const char letter : bytes_) {
      rest ^= static_cast<unsigned char>(letter);
      for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0xedb88320 : 0);
    }
    return add<std::uint64_t>(~rest);
  }

  const std::string& string() const { return bytes_; }
  std::vector<std::byte> bytes() const {
    const auto all = std::as_bytes(std::span(bytes_));
    return {all.begin(), all.end()};
  }

 private:
  std::string bytes_;
};

}  // namespace linnet
