#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace linnet {

/// Integers as a file stores them, little-endian.
struct IntegerType {
  std::size_t bytes = 0;
  bool is_signed = false;
};

/// A file of token ids [steps, fields], which is read where it is asked for: it may be larger than memory.
/// The formats, by the name of the file:
/// - NAME.safetensors: a tensor `tokens` of integers [steps] or [steps, fields], and optionally a tensor
///   `offsets` of integers [pieces + 1], the steps at which the pieces begin and the number of steps;
/// - NAME.npy: an array as `tokens`, and optionally NAME.offsets.npy beside it with an array as `offsets`;
/// - NAME.bin: unsigned integers one after another.
/// Any thread may read.
class TokenFile {
 public:
  /// `raw_bytes` and `raw_fields` are the bytes of an integer and the fields of a step of a .bin file. Throws
  /// Error for files that cannot be read, are damaged, have no step or hold other things than integers of 8
  /// to 64 bits, and for offsets that decrease, or do not begin at 0 or end at the number of steps.
  TokenFile(const std::filesystem::path& path, std::size_t raw_bytes, std::int64_t raw_fields);

  const std::string& name() const { return name_; }
  std::int64_t steps() const { return steps_; }
  std::int64_t fields() const { return fields_; }
  /// The offsets, where the file has them.
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  /// Of a .bin file the bytes of an integer; 0 for others.
  std::int64_t raw_bytes() const { return raw_bytes_; }

  /// Steps first … first + count − 1 into `to` [count, fields]. Throws Error for a token below 0 or beyond
  /// `sizes` [fields], naming the step.
  void read(std::int64_t first, std::span<const std::int64_t> sizes, std::span<std::int32_t> to) const;

  /// The largest token of each field. Reads the whole file, and throws as `read` does.
  std::vector<std::int64_t> largest(std::span<const std::int64_t> sizes) const;

  /// Whether every integer that the file could hold is a token 0 … size − 1 of each field.
  bool always_inside(std::span<const std::int64_t> sizes) const;

 private:
  // Bytes of the elements from an offset on.
  using Bytes = std::function<void(std::uint64_t offset, std::span<std::byte> to)>;
  struct Array {
    IntegerType type;
    std::vector<std::int64_t> shape;
    Bytes bytes;
  };
  static Array open_npy(const std::filesystem::path& path);
  void open_safetensors(const std::filesystem::path& path);
  void open_raw(const std::filesystem::path& path, std::size_t bytes, std::int64_t fields);
  void take_tokens(Array array);
  void take_offsets(const Array& array);

  std::string name_;
  IntegerType type_;
  std::int64_t steps_ = 0, fields_ = 0, raw_bytes_ = 0;
  std::vector<std::int64_t> offsets_;
  Bytes bytes_;
};

/// Writes NAME.safetensors of tokens [steps, fields] with the offsets of its pieces.
void write_token_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                      std::span<const std::int64_t> offsets, std::int64_t fields);

/// The file of the offsets of NAME.npy: NAME.offsets.npy.
std::filesystem::path offsets_of_npy(const std::filesystem::path& path);

/// Tokens of every field are below this, as far as a file says nothing else.
inline constexpr std::int64_t most_token_values = std::int64_t{1} << 31;

}  // namespace linnet
