#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fail.h"

namespace linnet {

/// The absolute path of the same file or folder, which need not be there: without dots, but for those behind
/// a folder that is not there, and without a slash at its end. Symbolic links are followed where two dots
/// come behind them, and stay otherwise.
std::filesystem::path absolute_path(const std::filesystem::path& path);

/// The extension of a file's name, in small letters, with its dot, which may be the first letter of the name.
std::string extension_of(const std::string& file);

/// All bytes of a file. Throws Error naming the file and the reason; also where there are more than
/// `most_bytes`, more than the memory that is free, or more than 256 MiB from a pipe or a device, which does
/// not say how many it will give.
std::string read_file(const std::filesystem::path& path,
                      std::size_t most_bytes = std::numeric_limits<std::size_t>::max());

/// The same of the files in the folder of a model or a run, where a pipe would be waited for without end:
/// throws Error for one, and for a device.
std::string read_regular_file(const std::filesystem::path& path,
                              std::size_t most_bytes = std::numeric_limits<std::size_t>::max());

/// The text behind the byte order mark of UTF-8 that some programs begin a file with.
std::string_view without_byte_order_mark(std::string_view text);

/// All bytes of a file, inflated where it is gzipped (known by its first bytes, not by its name). Throws
/// Error when it cannot be read, when the stream is truncated or damaged, and when more than `limit_bytes`
/// would come out, or more than 16 MiB and 30 times the bytes of the file: data compress less.
std::string read_maybe_gzipped(const std::filesystem::path& path, std::size_t limit_bytes);

/// A regular file that is read piece by piece, from several threads if need be.
class InputFile {
 public:
  /// Throws Error as `read_file` does, also for a pipe or a device.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Bytes of the file when it was opened.
  std::uint64_t size() const { return size_; }

  /// Bytes offset … offset + to.size() − 1 into `to`. Throws Error where the file ends before.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// The first `most_bytes` bytes of a regular file, or all of a smaller one. Throws as InputFile does.
std::string read_start(const std::filesystem::path& path, std::size_t most_bytes);

/// Writes beside `path`, flushes to the disk and renames into place: at every moment the old or the new file
/// is there whole. On failure the old one stays, nothing is left beside it, and the Error names the file and
/// the reason. The new file has the permissions of the old one. A symbolic link is followed. A device, a pipe
/// and an open descriptor of this process (/dev/stdout, /dev/fd/3) are written straight to, the last where it
/// stands, whatever it leads to.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// A file that is written piece by piece in the same way: it is there once `commit` has returned. What goes
/// straight to a device, a pipe or a descriptor is kept in memory until then.
class AtomicFile {
 public:
  /// Throws Error as `write_file_atomically` does; so do the functions below.
  explicit AtomicFile(const std::filesystem::path& path);
  /// Leaves everything as it was before, unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Writes bytes offset … offset + bytes.size() − 1, the end of the file or before.
  void write(std::uint64_t offset, std::string_view bytes);
  void commit();

 private:
  struct Place;
  std::unique_ptr<Place> place_;
};

/// Appends `line` and a newline with one write, so that lines of several processes do not mix. Not flushed to
/// the disk.
void append_line(const std::filesystem::path& path, std::string_view line);

/// Creates a folder and those above it, where they are missing, and flushes their names to the disk. Throws
/// Error naming the folder and the reason.
void create_folders(const std::filesystem::path& path);

/// body(), which looks at folders; what the system says against it becomes an Error.
template <class Body>
auto look_at_folders(const char* operation, const Body& body) {
  try {
    return body();
  } catch (const std::filesystem::filesystem_error& error) {
    fail(operation, "cannot read {}: {}", error.path1().string(), error.code().message());
  }
}

/// Whether this is the name of something that `write_file_atomically` or `AtomicFolder` is writing, or was: a
/// program that was killed leaves it behind.
bool is_temporary(const std::filesystem::path& path);

/// Removes what programs that were killed left in this folder under temporary names; those of other machines
/// and containers only a day later, since nobody here sees whether they run. Failing to do so harms nobody,
/// and throws nothing.
void remove_temporaries(const std::filesystem::path& folder);

/// Removes a folder with all in it. It first gets a temporary name: a killed program leaves no half of it
/// under its own. Throws Error naming the folder and the reason.
void remove_folder(const std::filesystem::path& path);

/// A folder of files that appears as a whole or not at all: write into `path()`, then `commit()`.
class AtomicFolder {
 public:
  /// What may lie at the destination.
  enum class Place {
    any_folder,   ///< which is replaced
    new_or_empty  ///< nothing, or an empty folder that is not the current one; also at `commit`
  };

  /// Creates a temporary folder beside `destination`, and removes those that killed programs left there.
  explicit AtomicFolder(const std::filesystem::path& destination, Place place = Place::any_folder);
  /// Removes the temporary folder unless it was committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// The temporary folder.
  const std::filesystem::path& path() const { return temporary_; }

  /// Flushes everything in it to the disk and renames it into place. A full folder of that name is exchanged
  /// for the new one in one step where the file system can do so, else renamed away first, and deleted
  /// afterwards.
  void commit();

 private:
  std::filesystem::path destination_;
  std::filesystem::path temporary_;
  Place place_;
  bool committed_ = false;
};

}  // namespace linnet
