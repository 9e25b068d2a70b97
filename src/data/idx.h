#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "linnet/tensor.h"

namespace linnet {

/// An array of bytes in the IDX format of the MNIST files: big-endian magic 0x00 0x00 type rank, extents,
/// elements.
struct IdxArray {
  Shape shape;
  std::vector<std::uint8_t> values;
};

/// Reads a plain or gzipped file of unsigned bytes with 1 to 4 dimensions. Throws Error naming the file for a
/// wrong magic number, impossible extents, and too few or too many bytes.
IdxArray read_idx(const std::filesystem::path& path);

/// Writes it plain and atomically (io/file.h).
void write_idx(const std::filesystem::path& path, std::span<const std::int64_t> shape,
               std::span<const std::uint8_t> values);

}  // namespace linnet
