#include "data/idx.h"

#include <cassert>
#include <limits>
#include <string>

#include "base/fail.h"
#include "io/file.h"

namespace linnet {
namespace {

constexpr std::size_t magic_bytes = 4, extent_bytes = 4;
constexpr std::uint8_t unsigned_byte = 0x08;
constexpr std::size_t most_bytes = std::size_t{1} << 32;

std::size_t header_bytes(std::size_t rank) { return magic_bytes + extent_bytes * rank; }

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  const std::string bytes = read_maybe_gzipped(path, most_bytes);
  const std::string name = path.string();
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  if (bytes.size() < magic_bytes)
    fail("read_idx", "{}: expected at least {} bytes, got {}", name, magic_bytes, bytes.size());
  const std::size_t rank = byte(3);
  if (byte(0) != 0 || byte(1) != 0 || byte(2) != unsigned_byte || rank < 1 || rank > 4)
    fail("read_idx",
         "{}: expected the magic number 00 00 08 01 … 04 of unsigned bytes, got {:02x} {:02x} {:02x} {:02x}",
         name, byte(0), byte(1), byte(2), byte(3));
  if (bytes.size() < header_bytes(rank))
    fail("read_idx", "{}: expected a header of {} bytes, got {}", name, header_bytes(rank), bytes.size());
  IdxArray array;
  for (std::size_t i = 0; i < rank; ++i) {
    std::int64_t extent = 0;
    for (std::size_t k = 0; k < extent_bytes; ++k)
      extent = extent << 8 | byte(magic_bytes + extent_bytes * i + k);
    array.shape.push_back(extent);
  }
  std::int64_t expected = 0;
  try {
    expected = checked_size(array.shape);
  } catch (const Error&) {
    fail("read_idx", "{}: expected a shape of fewer than 2^63 values, got {}", name, to_string(array.shape));
  }
  if (static_cast<std::size_t>(expected) != bytes.size() - header_bytes(rank))
    fail("read_idx", "{}: expected {} bytes after the header for shape {}, got {}", name, expected,
         to_string(array.shape), bytes.size() - header_bytes(rank));
  array.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header_bytes(rank)), bytes.end());
  return array;
}

void write_idx(const std::filesystem::path& path, std::span<const std::int64_t> shape,
               std::span<const std::uint8_t> values) {
  if (shape.empty() || shape.size() > 4 || static_cast<std::size_t>(checked_size(shape)) != values.size())
    fail("write_idx", "expected 1 to 4 dimensions and as many values, got shape {} and {} values",
         to_string(shape), values.size());
  std::string bytes = {0, 0, static_cast<char>(unsigned_byte), static_cast<char>(shape.size())};
  for (const std::int64_t extent : shape) {
    if (extent > std::numeric_limits<std::uint32_t>::max())
      fail("write_idx", "expected extents below 2^32, got shape {}", to_string(shape));
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  }
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
  write_file_atomically(path, bytes);
}

}  // namespace linnet
