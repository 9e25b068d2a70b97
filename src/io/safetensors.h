#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linnet/tensor.h"

namespace linnet {

/// Named tensors of a safetensors file: eight bytes of header length (little-endian), a JSON header, the
/// elements. Everything the header says is checked when the file is read; a damaged file is an Error that
/// names it.
class Safetensors {
 public:
  static Safetensors read(const std::filesystem::path& path);
  /// The same for a file in memory; `origin` stands for its name in errors.
  static Safetensors parse(std::string bytes, const std::string& origin);

  /// In the order of their elements in the file.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;

  /// Throw Error when there is no such tensor (with the nearest name); `dtype` and `tensor` also when its
  /// elements are of a type that Linnet does not have (F16, BOOL …), `tensor` when it has more dimensions
  /// than a Tensor can.
  const Shape& shape(const std::string& name) const;
  DType dtype(const std::string& name) const;
  Tensor tensor(const std::string& name) const;

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Entry {
    std::string name;
    std::string type;  // as the file spells it
    Shape shape;
    std::size_t begin = 0, end = 0;  // bytes in the file
  };

  const Entry& find(const std::string& name) const;

  std::string origin_;
  std::string bytes_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written: `data` points to its elements, row by row.
struct NamedTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  const void* data = nullptr;
};

/// The bytes of a safetensors file. Elements start at a multiple of 64 bytes, and every tensor at a multiple
/// of its own element size: wider types are written first, otherwise in the order given. Throws Error for a
/// name given twice.
std::string encode_safetensors(std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata);

/// Writes them atomically (io/file.h).
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace linnet
