#include "outputs.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "base/fail.h"
#include "data/files.h"
#include "model/files.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

void check_file_path(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) fail("output", "expected the path of a file, got the folder {}", path);
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  if (!fs::is_directory(folder, ignored))
    fail("output", "expected a path in a folder that exists, got {}", path);
}

/// Whether a file of this name in a model's, a run's or a data set's folder is read.
bool is_read(const std::string& name) {
  return name == config_file || name == weights_file || name == "metrics.jsonl" ||
         name.find("ubyte") != std::string::npos || name.ends_with(".bin");
}

/// The input itself, the files that it names, or those of a folder.
std::vector<fs::path> files_of(const std::string& input) {
  std::error_code ignored;
  if (!fs::is_directory(input, ignored)) return files_found(input);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(input, ignored))
    if (is_read(entry.path().filename().string())) files.push_back(entry.path());
  return files;
}

/// Whether writing one would change the other. Pipes and devices keep nothing.
bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  const fs::file_status first = fs::status(a, error), second = fs::status(b, error);
  if (fs::exists(first) && fs::exists(second))
    return fs::is_regular_file(first) && fs::equivalent(a, b, error) && !error;
  if (fs::exists(first) || fs::exists(second)) return false;
  const auto whole = [&](const fs::path& path) {
    return fs::weakly_canonical(fs::absolute(path, error), error);
  };
  return whole(a) == whole(b);
}

}  // namespace

void check_outputs(const char* command, const std::vector<NamedPath>& outputs,
                   const std::vector<NamedPath>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedPath& output = outputs[i];
    if (output.path.empty()) continue;
    check_file_path(output.path);
    const auto refuse_same = [&](const NamedPath& other, const fs::path& file) {
      if (same_file(output.path, file))
        fail<UsageError>(command, "expected {} to be another file than {} {}, got {}", output.option,
                         other.option, file.string(), output.path);
    };
    for (const NamedPath& input : inputs)
      if (!input.path.empty())
        for (const fs::path& file : files_of(input.path)) refuse_same(input, file);
    for (std::size_t j = 0; j < i; ++j)
      if (!outputs[j].path.empty()) refuse_same(outputs[j], outputs[j].path);
  }
}

std::string extension_of(const std::string& file) {
  std::string extension = std::filesystem::path(file).extension().string();
  std::ranges::transform(extension, extension.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return extension;
}

}  // namespace linnet
