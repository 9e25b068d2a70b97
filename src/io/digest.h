#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace linnet {

/// The digest by which files of Linnet know their own damage: XXH3 of 64 bits with seed 0 (Collet, xxHash
/// 0.8), written as 16 hexadecimal digits, the most significant first, as `xxhsum -H3` prints it. It finds
/// accidents, not forgeries.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  /// The next bytes; one piece or several give the same digest.
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  /// Of all bytes so far.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string digest_of(std::span<const std::byte> bytes);
std::string digest_of(std::string_view text);

/// Of a file's bytes, which are read piece by piece. Throws Error where it cannot be read.
std::string digest_of_file(const std::filesystem::path& path);

}  // namespace linnet
