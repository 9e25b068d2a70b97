#include "outputs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/fail.h"
#include "data/files.h"
#include "io/file.h"
#include "io/image.h"
#include "metrics_file.h"
#include "model/files.h"
#include "run_record.h"
#include "training/run_columns.h"
#include "training/run_lock.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

/// Whether a file can be made or replaced there, which happens beside it; devices and pipes are written to.
bool can_write(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored))
    return access(path.c_str(), W_OK) == 0;
  const fs::path target = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path, ignored) : path;
  return access(fs::absolute(target, ignored).parent_path().c_str(), W_OK | X_OK) == 0;
}

void check_file_path(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) fail("output", "expected the path of a file, got the folder {}", path);
  if (!fs::is_directory(fs::absolute(path, error).parent_path(), error))
    fail("output", "expected a path in a folder that exists, got {}", path);
  if (fs::status(path, error).type() == fs::file_type::none)
    fail("output", "cannot write {}: {}", path, error.message());
  if (!can_write(path)) fail("output", "cannot write {}: {}", path, std::generic_category().message(errno));
}

template <class Wanted>
void add_files_below(std::vector<fs::path>& files, const fs::path& folder, const Wanted& wanted) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error))
    if (wanted(at->path())) files.push_back(at->path());
}

/// The files of a model or a run. Those that it may have are named, so that none appears.
void add_files_of_model(std::vector<fs::path>& files, const fs::path& folder, bool existing) {
  for (const char* name : {config_file, weights_file, labels_file, tokenizer_file, record_file, columns_file,
                           metrics_file, RunLock::file_name})
    files.push_back(folder / name);
  if (!existing) return;
  for (const char* below : {"best", "checkpoints"})
    add_files_below(files, folder / below, [](const fs::path&) { return true; });
}

/// Whether a file of this name in a folder of data is read.
bool is_data(const fs::path& path) {
  const std::string name = path.filename().string(), extension = extension_of(name);
  return name.find("ubyte") != std::string::npos || extension == ".bin" || is_image_file(path);
}

/// The input itself, the files that it names, or those of a folder; what is found below it only where an
/// `existing` file may be one of them.
std::vector<fs::path> files_of(const std::string& input, bool existing) {
  std::error_code ignored;
  if (!fs::is_directory(input, ignored)) return files_found(input);
  std::vector<fs::path> files;
  const auto run = run_of(input);
  if (run) add_files_of_model(files, *run, existing);
  if (run || fs::exists(fs::path(input) / config_file, ignored))
    add_files_of_model(files, input, existing);
  else if (existing)
    add_files_below(files, input, is_data);
  return files;
}

/// The inputs, and the data of those that are runs. A record that cannot be read names none.
std::vector<NamedPath> with_data_of_runs(std::vector<NamedPath> inputs) {
  for (std::size_t i = 0, given = inputs.size(); i < given; ++i) {
    const auto run = inputs[i].path.empty() ? std::nullopt : run_of(inputs[i].path);
    if (!run) continue;
    try {
      RunRecord record = RunRecord::read(*run);
      for (const std::string* source : sources_of(record.config.data))
        inputs.push_back({"the run's data", *source});
    } catch (const Error&) {
    }
  }
  return inputs;
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
  const std::vector<NamedPath> all_inputs = with_data_of_runs(inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedPath& output = outputs[i];
    if (output.path.empty()) continue;
    check_file_path(output.path);
    std::error_code ignored;
    const bool existing = fs::is_regular_file(output.path, ignored);
    const auto refuse_same = [&](const NamedPath& other, const fs::path& file) {
      if (same_file(output.path, file))
        fail<UsageError>(command, "expected {} to be another file than {} {}, got {}", output.option,
                         other.option, file.string(), output.path);
    };
    for (const NamedPath& input : all_inputs)
      if (!input.path.empty())
        for (const fs::path& file : files_of(input.path, existing)) refuse_same(input, file);
    for (std::size_t j = 0; j < i; ++j)
      if (!outputs[j].path.empty()) refuse_same(outputs[j], outputs[j].path);
  }
}

}  // namespace linnet
