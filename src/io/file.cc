#include "io/file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <new>
#include <system_error>
#include <utility>

#include "base/fail.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  bool open() const { return number_ >= 0; }
  // Some file systems report a full disk or quota only here.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

Descriptor open_file(const fs::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666));
}

// False with errno set when not everything could be written.
bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Flushes a file or folder to the disk. Not every file system can do so for folders: those say EINVAL.
bool flush(const fs::path& path) {
  const Descriptor file = open_file(path, O_RDONLY);
  return file.open() && (::fsync(file.get()) == 0 || errno == EINVAL);
}

// The path that a write goes to: absolute, symbolic links followed, no slash at its end.
fs::path resolved(const char* operation, const fs::path& path) {
  std::error_code error;
  if (path.empty()) fail(operation, "expected the path of a file or folder, got an empty one");
  fs::path result = fs::absolute(path, error).lexically_normal();
  if (!error && !result.has_filename()) result = result.parent_path();
  if (!error && fs::is_symlink(fs::symlink_status(result))) result = fs::weakly_canonical(result, error);
  if (error) fail(operation, "{}: {}", path.string(), error.message());
  return result;
}

// Removes what programs that no longer run left beside `path`. Failing to do so harms nobody.
void remove_stale(const fs::path& path) {
  const std::string prefix = fmt::format(".{}.", path.filename().string());
  constexpr std::string_view suffix = ".tmp";
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    int process = 0;
    const char* end = name.data() + name.size();
    const auto [next, failed] = std::from_chars(name.data() + prefix.size(), end, process);
    if (failed != std::errc() || next == end || *next != '-' || process <= 0) continue;
    if (::kill(process, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), error);
  }
}

// A name beside `path` that nobody else uses: .NAME.PROCESS-NUMBER.tmp
fs::path temporary_beside(const fs::path& path) {
  static std::atomic<unsigned> number{0};
  remove_stale(path);
  return path.parent_path() / fmt::format(".{}.{}-{}.tmp", path.filename().string(), ::getpid(), number++);
}

std::string inflate_all(const std::string& compressed, const fs::path& path, std::size_t limit_bytes) {
  constexpr const char* operation = "read_maybe_gzipped";
  struct Stream : z_stream {
    Stream() : z_stream{} {}
    ~Stream() { inflateEnd(this); }
  } stream;
  constexpr int gzip_only = 15 + 16;
  if (inflateInit2(&stream, gzip_only) != Z_OK) throw std::bad_alloc();
  std::string result;
  std::string buffer(1 << 18, '\0');
  std::string_view rest = compressed;
  while (true) {
    const std::size_t offered = std::min<std::size_t>(rest.size(), 1 << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    rest.remove_prefix(offered - stream.avail_in);
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    // Z_BUF_ERROR only says that there was nothing to do: the end of the input is found below.
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      fail(operation, "{}: expected a gzip stream, got damage before byte {} of {} ({})", path.string(),
           compressed.size() - rest.size(), compressed.size(),
           stream.msg != nullptr ? stream.msg : "unreadable");
    const std::size_t produced = buffer.size() - stream.avail_out;
    if (produced > limit_bytes - result.size())
      fail(operation, "{}: expected at most {} bytes when inflated, got more", path.string(), limit_bytes);
    result.append(buffer, 0, produced);
    if (status == Z_STREAM_END) {
      // Whatever follows must be another member.
      if (rest.empty()) return result;
      inflateReset(&stream);
    } else if (rest.empty() && stream.avail_out != 0) {
      fail(operation, "{}: expected a whole gzip stream, got one that ends after {} bytes", path.string(),
           compressed.size());
    }
  }
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file = open_file(path, O_RDONLY);
  struct stat status {};
  if (!file.open() || ::fstat(file.get(), &status) != 0)
    fail("read_file", "cannot read {}: {}", path.string(), reason(errno));
  if (S_ISDIR(status.st_mode)) fail("read_file", "expected a file, got the folder {}", path.string());
  std::string bytes;
  // Pipes and devices do not know their size: read until there is no more.
  std::string buffer(1 << 16, '\0');
  if (S_ISREG(status.st_mode)) {
    bytes.reserve(static_cast<std::size_t>(status.st_size));
    buffer.resize(std::clamp<std::size_t>(static_cast<std::size_t>(status.st_size) + 1, 1, 1 << 22));
  }
  while (true) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read_file", "cannot read {}: {}", path.string(), reason(errno));
    if (count == 0) return bytes;
    bytes.append(buffer, 0, static_cast<std::size_t>(count));
  }
}

std::string read_maybe_gzipped(const fs::path& path, std::size_t limit_bytes) {
  std::string bytes = read_file(path);
  if (bytes.starts_with("\x1f\x8b")) return inflate_all(bytes, path, limit_bytes);
  if (bytes.size() > limit_bytes)
    fail("read_maybe_gzipped", "{}: expected at most {} bytes, got {}", path.string(), limit_bytes,
         bytes.size());
  return bytes;
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  constexpr const char* operation = "write_file";
  const fs::path target = resolved(operation, path);
  std::error_code ignored;
  const fs::file_status status = fs::status(target, ignored);
  if (fs::is_directory(status))
    fail(operation, "expected the path of a file, got the folder {}", path.string());
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    Descriptor device = open_file(target, O_WRONLY);
    if (!device.open() || !write_all(device.get(), bytes) || !device.close())
      fail(operation, "cannot write {}: {}", path.string(), reason(errno));
    return;
  }
  const fs::path temporary = temporary_beside(target);
  Descriptor file = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.open()) fail(operation, "cannot write {}: {}", path.string(), reason(errno));
  if (!write_all(file.get(), bytes) || ::fsync(file.get()) != 0 || !file.close() ||
      ::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail(operation, "cannot write {}: {}", path.string(), reason(error));
  }
  if (!flush(target.parent_path()))
    fail(operation, "cannot flush the folder of {}: {}", path.string(), reason(errno));
}

void append_line(const fs::path& path, std::string_view line) {
  std::string text(line);
  text += '\n';
  Descriptor file = open_file(path, O_WRONLY | O_CREAT | O_APPEND);
  if (!file.open() || !write_all(file.get(), text) || !file.close())
    fail("append_line", "cannot write {}: {}", path.string(), reason(errno));
}

void create_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) fail("create_folder", "cannot create {}: {}", path.string(), error.message());
}

AtomicFolder::AtomicFolder(const fs::path& destination)
    : destination_(resolved("write_folder", destination)) {
  std::error_code error;
  const fs::file_status status = fs::status(destination_, error);
  if (fs::exists(status) && !fs::is_directory(status))
    fail("write_folder", "expected the path of a folder, got the file {}", destination.string());
  temporary_ = temporary_beside(destination_);
  if (::mkdir(temporary_.c_str(), 0777) != 0)
    fail("write_folder", "cannot create {}: {}", destination.string(), reason(errno));
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  const auto require = [&](bool success) {
    if (!success) fail("write_folder", "cannot write {}: {}", destination_.string(), reason(errno));
  };
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(temporary_, error))
    if (entry.is_regular_file() || entry.is_directory()) require(flush(entry.path()));
  if (error) fail("write_folder", "cannot write {}: {}", destination_.string(), error.message());
  require(flush(temporary_));
  // A rename takes the place of no folder or of an empty one; a full one must be exchanged or moved away.
  fs::path old;
  if (::rename(temporary_.c_str(), destination_.c_str()) != 0) {
    require(errno == ENOTEMPTY || errno == EEXIST);
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, destination_.c_str(), RENAME_EXCHANGE) == 0) {
      old = temporary_;
    } else {
      old = temporary_beside(destination_);
      require(::rename(destination_.c_str(), old.c_str()) == 0);
      if (::rename(temporary_.c_str(), destination_.c_str()) != 0) {
        const int failure = errno;
        ::rename(old.c_str(), destination_.c_str());
        errno = failure;
        require(false);
      }
    }
  }
  committed_ = true;
  require(flush(destination_.parent_path()));
  if (!old.empty()) fs::remove_all(old, error);
}

}  // namespace linnet
