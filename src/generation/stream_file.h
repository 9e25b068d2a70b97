#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace linnet {

/// An unfinished stream as a file keeps it.
struct SavedStream {
  std::int64_t left = 0;             ///< tokens that are still to be drawn
  std::vector<std::int32_t> tokens;  ///< its tokens so far, where whoever continues it needs them
  std::vector<std::byte> state;      ///< what Session::save gave
};

/// Writes streams into one file, atomically (io/file.h). In bytes, little-endian:
///   "LINNETSS", version (u32), number of streams (u64), for each stream
///     left (i64), n (u64), n tokens (i32), m (u64), m bytes of Session::save,
///   and the CRC-32 of all before it (u64).
void write_streams(const std::filesystem::path& path, std::span<const SavedStream> streams);

/// Reads them back, at least one. Throws Error naming the file where it is none of this kind, of another
/// version or damaged.
std::vector<SavedStream> read_streams(const std::filesystem::path& path);

}  // namespace linnet
