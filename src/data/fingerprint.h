#pragma once

#include <cstdint>
#include <string>

#include "linnet/dataset.h"

namespace linnet {

/// What tells the contents of data apart, wherever their files lie.
struct DataFingerprint {
  std::int64_t files = 0;  ///< 0 for data that are generated
  std::int64_t bytes = 0;  ///< of all files
  /// Of the bytes of all files, one after another, as 8 hexadecimal digits. Before a file of data.validation
  /// or data.test stands the key with a slash, and before an image the name of its class.
  std::string crc32 = {};

  bool operator==(const DataFingerprint&) const = default;

  std::string text() const;  ///< "8 bytes in 1 file with the CRC-32 0123abcd"
};

/// The fingerprint of the files that `open_datasets` reads, as they are on the disk: a compressed file has
/// another one than its contents. What is no regular file, such as a pipe, is left out. Throws Error for
/// files that are missing or cannot be read.
DataFingerprint fingerprint_of(const DataOptions& options);

/// The bytes of those files, by their sizes alone. Throws as `fingerprint_of`, but for files that vanish
/// meanwhile, which count for nothing.
std::int64_t bytes_of_files(const DataOptions& options);

}  // namespace linnet
