#include "data/fingerprint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "data/cifar.h"
#include "data/files.h"
#include "data/image_folder.h"
#include "data/images.h"
#include "data/mnist_files.h"
#include "data/token_file.h"
#include "data/tokens.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

// A file, and what beside its contents matters: a name of the part or the class that it belongs to.
struct Source {
  fs::path path;
  std::string name = {};
};

std::vector<Source> files_of_part(const DataOptions& options, const char* key, const std::string& value) {
  std::vector<Source> files;
  if (options.kind == "images") {
    const ImageFolder folder = list_images(value);
    for (const ImageFolder::File& file : folder.files)
      files.push_back({file.path, folder.classes.empty() ? "" : folder.classes[file.label]});
  } else if (options.kind == "tokens") {
    for (const fs::path& path : token_files(key, value)) {
      files.push_back({path});
      const fs::path offsets = offsets_of_npy(path);
      std::error_code ignored;
      if (path.extension() == ".npy" && fs::exists(offsets, ignored)) files.push_back({offsets});
    }
  } else {
    for (const fs::path& path : files_named(key, value, options.kind)) files.push_back({path});
  }
  return files;
}

std::vector<Source> files_of(const DataOptions& options) {
  std::vector<Source> files;
  if (options.kind == "digits" || options.kind == "copy" || options.kind == "reverse") return files;
  if (options.kind == "cifar10") {
    for (const fs::path& path : cifar_files(options.path)) files.push_back({path});
    return files;
  }
  if (options.kind == "mnist") {
    for (const MnistFiles& part : {mnist_training, mnist_test}) {
      files.push_back({find_mnist_file(options.path, part.images)});
      if (options.labels) files.push_back({find_mnist_file(options.path, part.labels)});
    }
    return files;
  }
  files = files_of_part(options, "data.path", options.path);
  for (const auto& [key, value] :
       {std::pair("data.validation", options.validation), std::pair("data.test", options.test)}) {
    if (value.empty()) continue;
    std::vector<Source> part = files_of_part(options, key, value);
    for (Source& file : part) {
      file.name = fmt::format("{}/{}", key, file.name);
      files.push_back(std::move(file));
    }
  }
  for (const auto& [key, value] :
       {std::pair("data.target", options.target), std::pair("data.tokenizer", options.tokenizer),
        std::pair("data.validation_target", options.validation_target),
        std::pair("data.test_target", options.test_target)}) {
    if (value.empty()) continue;
    for (const fs::path& path : files_named(key, value, options.kind))
      files.push_back({path, fmt::format("{}/", key)});
  }
  return files;
}

}  // namespace

std::string DataFingerprint::text() const {
  return fmt::format("{} bytes in {} file{} with the CRC-32 {}", bytes, files, files == 1 ? "" : "s", crc32);
}

DataFingerprint fingerprint_of(const DataOptions& options) {
  DataFingerprint result;
  uLong crc = crc32_z(0, nullptr, 0);
  std::vector<char> buffer(1 << 20);
  for (const auto& [path, name] : files_of(options)) {
    std::error_code ignored;
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) continue;
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(name.data()), name.size());
    std::ifstream file(path, std::ios::binary);
    while (file) {
      file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
      crc = crc32_z(crc, reinterpret_cast<const Bytef*>(buffer.data()),
                    static_cast<std::size_t>(file.gcount()));
      result.bytes += file.gcount();
    }
    if (!file.eof())
      fail("data", "cannot read {}: {}", path.string(), std::generic_category().message(errno));
    ++result.files;
  }
  if (result.files > 0) result.crc32 = fmt::format("{:08x}", crc);
  return result;
}

std::int64_t bytes_of_files(const DataOptions& options) {
  std::int64_t bytes = 0;
  for (const Source& file : files_of(options)) {
    std::error_code error;
    const std::uintmax_t size = fs::is_regular_file(file.path, error) ? fs::file_size(file.path, error) : 0;
    if (!error) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

}  // namespace linnet
