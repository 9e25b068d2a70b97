#pragma once

#include <filesystem>

namespace linnet {

/// Keeps a run's folder for one program: a lock on the file .lock in it, which the system releases when the
/// program ends, however it ends. Where a file system has no locks, there is none.
class RunLock {
 public:
  /// Takes the lock of a folder that exists. Throws Error, naming the folder and the process that holds it,
  /// where another one does.
  explicit RunLock(const std::filesystem::path& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws Error, naming the folder, where it is no longer the one whose lock this is: it, or the lock in
  /// it, was moved or removed, and another program may work in what has its name now.
  void check() const;

  /// Whether some program holds the lock of this folder.
  static bool is_held(const std::filesystem::path& run);

  static constexpr const char* file_name = ".lock";

 private:
  std::filesystem::path run_;
  int file_;
};

}  // namespace linnet
