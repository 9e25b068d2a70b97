#include "training/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/fail.h"

namespace linnet {
namespace {

constexpr const char* operation = "train";

// Of the open file and not of the process: it also holds between two runs of one process.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string holder(int file) {
  char text[24] = {};
  const ssize_t size = ::pread(file, text, sizeof text - 1, 0);
  return size > 0 ? fmt::format("process {}", text) : "another process";
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run)
    : run_(run), file_(::open((run / file_name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0)
    fail(operation, "cannot write {}: {}", (run / file_name).string(),
         std::generic_category().message(errno));
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(file_, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES)) {
    const std::string other = holder(file_);
    ::close(file_);
    fail(operation, "expected {} to be in use by no other program, got one that {} is training in",
         run.string(), other);
  }
  // For the sentence above alone: what cannot be written is left out.
  const std::string process = std::to_string(::getpid());
  if (::ftruncate(file_, 0) == 0) [[maybe_unused]]
    const ssize_t written = ::pwrite(file_, process.data(), process.size(), 0);
}

RunLock::~RunLock() {
  [[maybe_unused]] const int emptied = ::ftruncate(file_, 0);
  ::close(file_);
}

void RunLock::check() const {
  struct stat own {
  }, found{};
  if (::fstat(file_, &own) != 0) return;
  if (::stat((run_ / file_name).c_str(), &found) == 0 && own.st_dev == found.st_dev &&
      own.st_ino == found.st_ino)
    return;
  std::error_code ignored;
  fail(operation,
       "expected {} to be the folder that this run began in, with its file {}, got {}: one of them was moved "
       "or removed",
       run_.string(), file_name,
       !std::filesystem::exists(run_, ignored)              ? "no folder"
       : std::filesystem::exists(run_ / file_name, ignored) ? "another file"
                                                            : "no such file");
}

bool RunLock::is_held(const std::filesystem::path& run) {
  const int file = ::open((run / file_name).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct flock lock = whole_file(F_WRLCK);
  const bool held = ::fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  ::close(file);
  return held;
}

}  // namespace linnet
