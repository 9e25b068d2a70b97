#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace linnet {

/// All bytes of a file. Throws Error naming the file and the reason.
std::string read_file(const std::filesystem::path& path);

/// All bytes of a file, inflated where it is gzipped (known by its first bytes, not by its name). Throws
/// Error when it cannot be read, when the stream is truncated or damaged, and when more than `limit_bytes`
/// would come out.
std::string read_maybe_gzipped(const std::filesystem::path& path, std::size_t limit_bytes);

/// Writes beside `path`, flushes to the disk and renames into place: at every moment the old or the new file
/// is there whole. On failure the old one stays, nothing is left beside it, and the Error names the file and
/// the reason. A symbolic link is followed; a device or a pipe is written straight to.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Appends `line` and a newline with one write, so that lines of several processes do not mix. Not flushed to
/// the disk.
void append_line(const std::filesystem::path& path, std::string_view line);

/// Creates a folder and those above it, where they are missing. Throws Error naming the folder and the
/// reason.
void create_folders(const std::filesystem::path& path);

/// A folder of files that appears as a whole or not at all: write into `path()`, then `commit()`.
class AtomicFolder {
 public:
  /// Creates a temporary folder beside `destination`, and removes those that killed programs left there.
  explicit AtomicFolder(const std::filesystem::path& destination);
  /// Removes the temporary folder unless it was committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// The temporary folder.
  const std::filesystem::path& path() const { return temporary_; }

  /// Flushes everything in it to the disk and renames it into place. A folder of that name is exchanged for
  /// the new one in one step where the file system can do so, else renamed away first, and deleted
  /// afterwards.
  void commit();

 private:
  std::filesystem::path destination_;
  std::filesystem::path temporary_;
  bool committed_ = false;
};

}  // namespace linnet
