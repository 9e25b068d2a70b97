#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/file.h"
#include "linnet/tensor.h"

namespace linnet {

/// Named tensors of a safetensors file: eight bytes of header length (little-endian), a JSON header, the
/// elements. Everything the header says is checked when the file is opened; a damaged file is an Error that
/// names it. Elements are read when they are asked for, and compared with their digests where the file has
/// them (docs/format.md); files of other programs have none.
class Safetensors {
 public:
  /// A pipe is read to its end, a file piece by piece.
  static Safetensors read(const std::filesystem::path& path);
  /// The same for a file in memory; `origin` stands for its name in errors.
  static Safetensors parse(std::string bytes, const std::string& origin);

  /// In the order of their elements in the file.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;

  /// Throw Error when there is no such tensor (with the nearest name); `dtype`, `tensor` and `copy` also when
  /// its elements are of a type that Linnet does not have (F16, BOOL …), `tensor` when it has more dimensions
  /// than a Tensor can. `tensor` and `copy` throw Error when the elements are not those of the digest.
  const Shape& shape(const std::string& name) const;
  DType dtype(const std::string& name) const;
  Tensor tensor(const std::string& name) const;
  /// The elements into `to`, which has their bytes.
  void copy(const std::string& name, std::span<std::byte> to) const;

  /// The type of the elements as the file spells it, "I16"; also one that Linnet does not have. Throws Error
  /// when there is no such tensor.
  const std::string& type(const std::string& name) const;
  /// The bytes of the elements from `offset` on into `to`, not compared with the digest: that is one of all
  /// of them. Throws Error where there are fewer.
  void copy_part(const std::string& name, std::uint64_t offset, std::span<std::byte> to) const;

  /// Reads all elements. Throws Error naming the first tensor that its digest does not fit; nothing for a
  /// file without digests.
  void check_digests() const;

  /// Without the digests.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Entry {
    std::string name;
    std::string type;  // as the file spells it
    Shape shape;
    std::uint64_t begin = 0, end = 0;  // bytes in the file
    std::string digest;                // empty where the file has none
  };

  // `text` is that of `origin`'s header, behind which `data_bytes` bytes follow.
  static Safetensors from_header(std::string_view text, std::uint64_t data_bytes, const std::string& origin);

  const Entry& find(const std::string& name) const;
  void take_digests();
  void read_bytes(std::uint64_t begin, std::span<std::byte> to) const;
  void check_digest(const Entry& entry, const std::string& found) const;

  std::string origin_;
  std::string bytes_;                      // of a file in memory, or
  std::shared_ptr<const InputFile> file_;  // an open one
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written: `data` points to its elements, row by row.
struct NamedTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  const void* data = nullptr;
};

/// The bytes of a safetensors file, digests included. Elements start at a multiple of 64 bytes, and every
/// tensor at a multiple of its own element size: wider types are written first, otherwise in the order given.
/// Throws Error for a name given twice and for metadata under the name of a digest.
std::string encode_safetensors(std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata);

/// Writes them atomically (io/file.h).
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace linnet
