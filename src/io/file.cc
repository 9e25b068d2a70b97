#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// Of a pipe or a device, such as /dev/zero, which never ends.
constexpr std::size_t most_stream_bytes = std::size_t{256} << 20;

/// Files up to this size are read without asking how much memory is free.
constexpr std::size_t small_bytes = std::size_t{16} << 20;

std::string reason(int error) { return std::generic_category().message(error); }

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const fs::path& path, int flags) { open(path, flags); }
  ~Descriptor() {
    if (is_open()) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // False with errno set where it cannot be opened. Only while it is not open.
  bool open(const fs::path& path, int flags, mode_t mode = 0666) {
    number_ = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    return is_open();
  }
  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  // Some file systems report a full disk or quota only here.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_ = -1;
};

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
  const Descriptor file(path, O_RDONLY);
  // A folder in which one may write but not read cannot be opened, and some systems flush no folders.
  if (!file.is_open()) return errno == EACCES;
  return ::fsync(file.get()) == 0 || errno == EINVAL;
}

// The number of the descriptor that a path stands for: /dev/stdout, /dev/fd/3 and what these lead to.
std::optional<int> own_descriptor(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(path.parent_path(), error);
  if (error || folder != fs::canonical("/proc/self/fd", error)) return {};
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (failed != std::errc() || end != name.data() + name.size()) return {};
  return number;
}

// The path that a write goes to: absolute, symbolic links followed, also where they lead to nothing. Those of
// descriptors are no names of files and stay.
fs::path resolved(const char* operation, const fs::path& path) {
  if (path.empty()) fail(operation, "expected the path of a file or folder, got an empty one");
  constexpr int most_links = 40;
  std::error_code error;
  fs::path result = absolute_path(path);
  for (int links = 0; fs::is_symlink(fs::symlink_status(result, error)) && !own_descriptor(result); ++links) {
    const fs::path target = fs::read_symlink(result, error);
    if (links == most_links) error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    if (error) fail(operation, "{}: {}", path.string(), error.message());
    result = absolute_path(result.parent_path() / target);
  }
  return result;
}

constexpr std::string_view temporary_suffix = ".tmp";

// Where the number of a process means what it means here: the machine, and its namespace of processes.
const std::string& process_space() {
  // Never destroyed: a thread may still write when the program ends.
  static const auto& text = *new std::string([] {
    std::array<char, HOST_NAME_MAX + 1> machine{};
    ::gethostname(machine.data(), machine.size() - 1);
    struct stat ids {};
    const bool known = ::stat("/proc/self/ns/pid", &ids) == 0;
    const std::string name = fmt::format("{} {}", machine.data(), known ? ids.st_ino : 0);
    return fmt::format("{:08x}", ::crc32_z(0, reinterpret_cast<const Bytef*>(name.data()), name.size()));
  }());
  return text;
}

// The first part of a temporary name, .STEM.PROCESS-NUMBER-SPACE.tmp, which must not become too long a name.
std::string stem_of(const fs::path& path) {
  constexpr std::size_t most_bytes = 200;
  std::string stem = path.filename().string();
  if (stem.size() <= most_bytes) return stem;
  std::size_t size = most_bytes;
  while (size > 0 && is_utf8_continuation(stem[size])) --size;
  return stem.substr(0, size);
}

// Whether nobody writes any more what has this temporary name. The processes of other machines and containers
// cannot be seen: what they write counts as left when it has not changed for a day.
bool is_stale(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t dot = name.rfind('.', name.size() - temporary_suffix.size() - 1);
  int process = 0;
  const char* end = name.data() + name.size();
  const auto [next, failed] = std::from_chars(name.data() + dot + 1, end, process);
  if (dot == 0 || failed != std::errc() || next == end || *next != '-' || process <= 0) return false;
  if (name.ends_with(fmt::format("-{}{}", process_space(), temporary_suffix)))
    return ::kill(process, 0) != 0 && errno == ESRCH;
  std::error_code error;
  const fs::file_time_type changed = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - changed > std::chrono::hours(24);
}

// Removes what programs that no longer run left in a folder under temporary names, of one STEM or, where it
// is empty, of all. Failing to do so harms nobody.
void remove_stale(const fs::path& folder, const std::string& stem) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const fs::path& path = entry->path();
    if (!is_temporary(path)) continue;
    const std::string name = path.filename().string();
    const std::size_t dot = name.rfind('.', name.size() - temporary_suffix.size() - 1);
    if ((stem.empty() || name.substr(1, std::max<std::size_t>(dot, 1) - 1) == stem) && is_stale(path))
      found.push_back(path);
  }
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

// Makes something under a temporary name beside `path`. `make` fails with EEXIST where the name is in use: by
// what somebody put there.
template <class Make>
fs::path make_beside(const fs::path& path, const Make& make) {
  constexpr int most_tries = 1000;
  static std::atomic<unsigned> number{0};
  const std::string stem = stem_of(path);
  remove_stale(path.parent_path(), stem);
  for (int tries = 0;; ++tries) {
    const std::string name =
        fmt::format(".{}.{}-{}-{}{}", stem, ::getpid(), number++, process_space(), temporary_suffix);
    if (make(path.parent_path() / name) || errno != EEXIST || tries == most_tries)
      return path.parent_path() / name;
  }
}

constexpr const char* folder_operation = "write_folder";

std::string inflate_all(const std::string& compressed, const fs::path& path, std::size_t most_bytes) {
  constexpr const char* operation = "read_maybe_gzipped";
  constexpr std::size_t always = std::size_t{16} << 20, most_ratio = 30;
  const std::size_t limit_bytes = std::min(most_bytes, always + most_ratio * compressed.size());
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
      fail(operation, "{}: expected at most {} bytes from {} gzipped ones, got more", path.string(),
           limit_bytes, compressed.size());
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

std::string extension_of(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  return in_small_letters(std::string_view(name).substr(std::min(name.rfind('.'), name.size())));
}

fs::path absolute_path(const fs::path& path) {
  if (path.empty()) fail<UsageError>("path", "expected the path of a file or folder, got an empty one");
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  if (error) fail("path", "cannot find the folder of {}: {}", path.string(), error.message());
  fs::path result;
  for (const fs::path& part : whole) {
    if (part.empty() || part == ".") continue;
    result /= part;
    if (part != "..") continue;
    // Behind a symbolic link it is not the folder in which the link lies.
    if (const fs::path folder = fs::canonical(result, error); !error) result = folder;
  }
  return result;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text;
}

std::string read_file(const fs::path& path, std::size_t most_bytes) {
  const Descriptor file(path, O_RDONLY);
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0)
    fail("read_file", "cannot read {}: {}", path.string(), reason(errno));
  if (S_ISDIR(status.st_mode)) fail("read_file", "expected a file, got the folder {}", path.string());
  std::string bytes;
  // Pipes and devices do not know their size: read until there is no more.
  std::string buffer(1 << 16, '\0');
  std::size_t limit = most_bytes;
  if (S_ISREG(status.st_mode)) {
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size > limit)
      fail("read_file", "expected at most {} bytes in {}, got {}", limit, path.string(), size);
    if (size > small_bytes) require_memory(path.string(), static_cast<double>(size));
    bytes.reserve(size);
    buffer.resize(std::clamp<std::size_t>(size + 1, 1, 1 << 22));
  } else {
    limit = std::min(limit, most_stream_bytes);
  }
  while (true) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read_file", "cannot read {}: {}", path.string(), reason(errno));
    if (count == 0) return bytes;
    if (static_cast<std::size_t>(count) > limit - bytes.size())
      fail("read_file", "expected at most {} bytes from {}, got more", limit, path.string());
    bytes.append(buffer, 0, static_cast<std::size_t>(count));
  }
}

InputFile::InputFile(const fs::path& path)
    : path_(path),
      descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a pipe is not waited for
  struct stat status {};
  const int error = descriptor_ < 0 || ::fstat(descriptor_, &status) != 0 ? errno : 0;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  if (descriptor_ >= 0) ::close(descriptor_);
  if (error != 0) fail("read_file", "cannot read {}: {}", path.string(), reason(error));
  fail("read_file", "expected a file, got the {} {}", S_ISDIR(status.st_mode) ? "folder" : "pipe or device",
       path.string());
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read_file", "cannot read {}: {}", path_.string(), reason(errno));
    if (count == 0)
      fail("read_file", "expected {} bytes in {}, got a file that was cut to {} while it was read", size_,
           path_.string(), offset);
    offset += static_cast<std::uint64_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
}

std::string read_regular_file(const fs::path& path, std::size_t most_bytes) {
  const InputFile regular(path);
  return read_file(path, most_bytes);
}

std::string read_maybe_gzipped(const fs::path& path, std::size_t limit_bytes) {
  std::string bytes = read_file(path);
  if (bytes.starts_with("\x1f\x8b")) return inflate_all(bytes, path, limit_bytes);
  if (bytes.size() > limit_bytes)
    fail("read_maybe_gzipped", "{}: expected at most {} bytes, got {}", path.string(), limit_bytes,
         bytes.size());
  return bytes;
}

/// Where the bytes of an AtomicFile go.
struct AtomicFile::Place {
  fs::path path, target, temporary;
  std::optional<int> own;  ///< descriptor of this process that the path stands for
  Descriptor file;         ///< the temporary file, or the device
  std::string kept;        ///< bytes for a device or a descriptor

  [[noreturn]] void refuse(int error) const {
    fail("write_file", "cannot write {}: {}", path.string(), reason(error));
  }
};

AtomicFile::AtomicFile(const fs::path& path) : place_(std::make_unique<Place>()) {
  place_->path = path;
  place_->target = resolved("write_file", path);
  place_->own = own_descriptor(place_->target);
  if (place_->own) return;
  struct stat status {};
  const bool exists = ::stat(place_->target.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    fail("write_file", "expected the path of a file, got the folder {}", path.string());
  if (exists && !S_ISREG(status.st_mode)) {
    if (!place_->file.open(place_->target, O_WRONLY)) place_->refuse(errno);
    return;
  }
  // Bytes that were kept from others are so at every moment.
  const mode_t mode = exists ? status.st_mode & 0777 : 0666;
  const fs::path temporary = make_beside(place_->target, [&](const fs::path& name) {
    return place_->file.open(name, O_WRONLY | O_CREAT | O_EXCL, mode);
  });
  if (!place_->file.is_open()) place_->refuse(errno);
  place_->temporary = temporary;
  if (exists) ::fchmod(place_->file.get(), mode);  // not every file system has modes
}

AtomicFile::~AtomicFile() {
  if (!place_->temporary.empty()) ::unlink(place_->temporary.c_str());
}

void AtomicFile::write(std::uint64_t offset, std::string_view bytes) {
  if (place_->temporary.empty()) {
    const auto at = static_cast<std::size_t>(offset);
    place_->kept.replace(at, std::min(bytes.size(), place_->kept.size() - at), bytes);
    return;
  }
  if (::lseek(place_->file.get(), static_cast<off_t>(offset), SEEK_SET) < 0 ||
      !write_all(place_->file.get(), bytes))
    place_->refuse(errno);
}

void AtomicFile::commit() {
  if (place_->own) {
    std::fflush(stdout);  // what was printed comes first
    if (!write_all(*place_->own, place_->kept)) place_->refuse(errno);
    return;
  }
  if (place_->temporary.empty()) {
    if (!write_all(place_->file.get(), place_->kept) || !place_->file.close()) place_->refuse(errno);
    return;
  }
  if (::fsync(place_->file.get()) != 0 || !place_->file.close() ||
      ::rename(place_->temporary.c_str(), place_->target.c_str()) != 0)
    place_->refuse(errno);
  place_->temporary.clear();
  if (!flush(place_->target.parent_path()))
    fail("write_file", "cannot flush the folder of {}: {}", place_->path.string(), reason(errno));
}

std::string read_start(const fs::path& path, std::size_t most_bytes) {
  const InputFile file(path);
  std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), most_bytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(0, bytes);
  file.commit();
}

void append_line(const fs::path& path, std::string_view line) {
  std::string text(line);
  text += '\n';
  Descriptor file(path, O_WRONLY | O_CREAT | O_APPEND);
  if (!file.is_open() || !write_all(file.get(), text) || !file.close())
    fail("append_line", "cannot write {}: {}", path.string(), reason(errno));
}

void create_folders(const fs::path& path) {
  std::error_code error, missing;
  std::vector<fs::path> created;
  for (fs::path folder = absolute_path(path);
       !fs::exists(fs::symlink_status(folder, missing)) && folder.has_relative_path();
       folder = folder.parent_path())
    created.push_back(folder);
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) fail("create_folder", "cannot create {}: {}", path.string(), error.message());
  for (const fs::path& folder : created)
    if (!flush(folder.parent_path()))
      fail("create_folder", "cannot flush the folder of {}: {}", folder.string(), reason(errno));
}

bool is_temporary(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') && name.size() > temporary_suffix.size() && name.ends_with(temporary_suffix);
}

void remove_temporaries(const fs::path& folder) { remove_stale(folder, ""); }

void remove_folder(const fs::path& path) {
  constexpr const char* operation = "remove_folder";
  const fs::path target = resolved(operation, path);
  bool made = false;
  const fs::path temporary =
      make_beside(target, [&](const fs::path& name) { return made = ::mkdir(name.c_str(), 0777) == 0; });
  // An empty folder is replaced.
  if (!made || ::rename(target.c_str(), temporary.c_str()) != 0) {
    const int error = errno;
    if (made) ::rmdir(temporary.c_str());
    fail(operation, "cannot remove {}: {}", path.string(), reason(error));
  }
  std::error_code error;
  fs::remove_all(temporary, error);
  if (error) fail(operation, "cannot remove {}: {}", path.string(), error.message());
}

AtomicFolder::AtomicFolder(const fs::path& destination, Place place)
    : destination_(resolved(folder_operation, destination)), place_(place) {
  std::error_code error;
  const fs::file_status status = fs::status(destination_, error);
  if (fs::exists(status) && !fs::is_directory(status))
    fail(folder_operation, "expected the path of a folder, got the file {}", destination.string());
  if (fs::exists(status) && place == Place::new_or_empty) {
    if (!fs::is_empty(destination_, error) && !error)
      fail(folder_operation, "expected a new or empty folder, got {}, which holds something",
           destination.string());
    if (error) fail(folder_operation, "cannot read {}: {}", destination.string(), error.message());
    if (fs::equivalent(destination_, ".", error))
      fail(
          folder_operation,
          "expected another folder than the current one, which would be replaced, got {}; a name in it, such "
          "as {}, is a new folder",
          destination.string(), (destination / "new").string());
  }
  bool made = false;
  temporary_ = make_beside(destination_,
                           [&](const fs::path& name) { return made = ::mkdir(name.c_str(), 0777) == 0; });
  if (!made) fail(folder_operation, "cannot create {}: {}", destination.string(), reason(errno));
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  const auto require = [&](bool success) {
    if (!success) fail(folder_operation, "cannot write {}: {}", destination_.string(), reason(errno));
  };
  look_at_folders(folder_operation, [&] {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(temporary_))
      if (entry.is_regular_file() || entry.is_directory()) require(flush(entry.path()));
  });
  require(flush(temporary_));
  // A rename takes the place of no folder or of an empty one; a full one must be exchanged or moved away.
  fs::path old;
  if (::rename(temporary_.c_str(), destination_.c_str()) != 0) {
    require(errno == ENOTEMPTY || errno == EEXIST);
    if (place_ == Place::new_or_empty)
      fail(folder_operation, "expected {} to stay new or empty until it is written, got something in it",
           destination_.string());
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, destination_.c_str(), RENAME_EXCHANGE) == 0) {
      old = temporary_;
    } else {
      old = make_beside(destination_, [&](const fs::path& name) { return ::mkdir(name.c_str(), 0777) == 0; });
      require(::rename(destination_.c_str(), old.c_str()) == 0);  // an empty folder is replaced
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
  std::error_code ignored;
  if (!old.empty()) fs::remove_all(old, ignored);
}

}  // namespace linnet
