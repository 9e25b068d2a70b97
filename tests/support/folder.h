#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace linnet {

/// An empty folder of the running test, removed with it; `name` tells several apart.
class Folder {
 public:
  explicit Folder(const std::string& name = "first") {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string own = std::string("linnet-") + test->test_suite_name() + "-" + test->name() + "-" + name +
                      "-" + std::to_string(getpid());
    for (char& letter : own)
      if (letter == '/') letter = '-';
    // In memory where there is such a place: runs flush many small files to the disk.
    const std::filesystem::path memory = "/dev/shm";
    path_ = (access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path()) / own;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace linnet
