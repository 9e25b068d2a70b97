#include "data/cifar.h"

#include <cassert>
#include <string>

#include "base/fail.h"
#include "io/file.h"

namespace linnet {

CifarBatch read_cifar(const std::filesystem::path& path) {
  constexpr std::size_t plane_bytes = cifar_channels * cifar_size * cifar_size, record = 1 + plane_bytes;
  const std::string bytes = read_file(path);
  if (bytes.empty() || bytes.size() % record != 0)
    fail("read_cifar", "{}: expected one or more records of {} bytes, got {} bytes", path.string(), record,
         bytes.size());
  CifarBatch batch;
  batch.planes.reserve(bytes.size() / record * plane_bytes);
  for (std::size_t at = 0; at < bytes.size(); at += record) {
    const std::uint8_t label = static_cast<std::uint8_t>(bytes[at]);
    if (label >= cifar_classes)
      fail("read_cifar", "{}: expected labels from 0 to {}, got {} in record {}", path.string(),
           cifar_classes - 1, label, at / record);
    batch.labels.push_back(label);
    const auto planes = bytes.begin() + static_cast<std::ptrdiff_t>(at + 1);
    batch.planes.insert(batch.planes.end(), planes, planes + static_cast<std::ptrdiff_t>(plane_bytes));
  }
  return batch;
}

std::vector<std::filesystem::path> cifar_files(const std::filesystem::path& folder) {
  constexpr int training_batches = 5;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i <= training_batches; ++i) files.push_back(folder / fmt::format("data_batch_{}.bin", i));
  files.push_back(folder / "test_batch.bin");
  return files;
}

std::vector<std::uint8_t> interleave(std::span<const std::uint8_t> planes, std::int64_t channels,
                                     std::int64_t pixels) {
  const std::int64_t image = channels * pixels, count = static_cast<std::int64_t>(planes.size()) / image;
  assert(count * image == static_cast<std::int64_t>(planes.size()));
  std::vector<std::uint8_t> result(planes.size());
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t p = 0; p < pixels; ++p)
      for (std::int64_t c = 0; c < channels; ++c)
        result[static_cast<std::size_t>(i * image + p * channels + c)] =
            planes[static_cast<std::size_t>(i * image + c * pixels + p)];
  return result;
}

}  // namespace linnet
