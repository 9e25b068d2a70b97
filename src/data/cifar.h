#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace linnet {

inline constexpr std::int64_t cifar_size = 32, cifar_channels = 3, cifar_classes = 10;

/// Images of one of CIFAR-10's binary files: `planes` [count, 3, 32, 32], a red, a green and a blue plane
/// each, and `labels` [count], below 10.
struct CifarBatch {
  std::vector<std::uint8_t> planes, labels;

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

/// Reads a file of records of a label and 3072 bytes of planes (Krizhevsky, "Learning multiple layers of
/// features from tiny images", 2009; the data's binary version). Throws Error naming the file where it is
/// empty or no whole number of records, or where a label is above 9.
CifarBatch read_cifar(const std::filesystem::path& path);

/// The files of a folder of the data: five of training batches and that of the test batch.
std::vector<std::filesystem::path> cifar_files(const std::filesystem::path& folder);

/// Planes [count, channels, pixels] as pixels [count, pixels, channels], the order of a model's tokens.
std::vector<std::uint8_t> interleave(std::span<const std::uint8_t> planes, std::int64_t channels,
                                     std::int64_t pixels);

}  // namespace linnet
