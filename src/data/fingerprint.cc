#include "data/fingerprint.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "data/cifar.h"
#include "data/images.h"
#include "data/mnist_files.h"
#include "data/sources.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of_kind(const DataOptions& options) {
  if (options.kind == "text" && !options.tokenizer.empty()) return {options.path, options.tokenizer};
  if (options.kind == "text" || options.kind == "bytes" || options.kind == "fasta") return {options.path};
  if (options.kind == "series" || options.kind == "sound") {
    std::vector<fs::path> files;
    for (const std::string* list : {&options.path, &options.target, &options.validation, &options.test})
      std::ranges::copy(files_of(*list), std::back_inserter(files));
    return files;
  }
  if (options.kind == "cifar10") return cifar_files(options.path);
  if (options.kind != "mnist") return {};
  std::vector<fs::path> files;
  for (const MnistFiles& part : {mnist_training, mnist_test}) {
    files.push_back(find_mnist_file(options.path, part.images));
    if (options.labels) files.push_back(find_mnist_file(options.path, part.labels));
  }
  return files;
}

}  // namespace

DataFingerprint fingerprint_of(const DataOptions& options) {
  DataFingerprint result;
  uLong crc = crc32_z(0, nullptr, 0);
  std::vector<char> buffer(1 << 20);
  for (const fs::path& path : files_of_kind(options)) {
    std::error_code ignored;
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) continue;
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

}  // namespace linnet
