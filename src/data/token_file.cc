#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/memory.h"
#include "io/file.h"
#include "io/npy.h"
#include "io/safetensors.h"

namespace linnet {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "integers of files are used as they are stored");

constexpr std::int64_t most_fields = 256;
constexpr std::int64_t block_elements = 1 << 16;

template <class T>
void widen(std::span<const std::byte> bytes, std::span<std::int64_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    to[i] = std::int64_t{+value};  // promoted with its sign
  }
}

// `to.size()` integers of this type.
void decode(IntegerType type, std::span<const std::byte> bytes, std::span<std::int64_t> to) {
  assert(bytes.size() == to.size() * type.bytes);
  switch (type.bytes) {
    case 1:
      return type.is_signed ? widen<std::int8_t>(bytes, to) : widen<std::uint8_t>(bytes, to);
    case 2:
      return type.is_signed ? widen<std::int16_t>(bytes, to) : widen<std::uint16_t>(bytes, to);
    case 4:
      return type.is_signed ? widen<std::int32_t>(bytes, to) : widen<std::uint32_t>(bytes, to);
    default:
      return widen<std::int64_t>(bytes, to);
  }
}

constexpr const char* integer_types = "integers of 8 to 64 bits, or of 8 to 32 without a sign";

IntegerType type_of(const Safetensors& file, const std::string& tensor, const std::string& name) {
  struct Known {
    const char* type;
    IntegerType integer;
  };
  constexpr std::array<Known, 7> known = {{{"I8", {1, true}},
                                           {"I16", {2, true}},
                                           {"I32", {4, true}},
                                           {"I64", {8, true}},
                                           {"U8", {1, false}},
                                           {"U16", {2, false}},
                                           {"U32", {4, false}}}};
  for (const auto& [type, integer] : known)
    if (file.type(tensor) == type) return integer;
  fail("data", "{}: expected {} in tensor \"{}\", got {}", name, integer_types, tensor, file.type(tensor));
}

}  // namespace

fs::path offsets_of_npy(const fs::path& path) { return fs::path(path).replace_extension(".offsets.npy"); }

void write_token_file(const fs::path& path, std::span<const std::int32_t> tokens,
                      std::span<const std::int64_t> offsets, std::int64_t fields) {
  const std::vector<NamedTensor> tensors = {
      {"tokens", DType::i32, {std::ssize(tokens) / fields, fields}, tokens.data()},
      {"offsets", DType::i64, {std::ssize(offsets)}, offsets.data()}};
  write_safetensors(path, tensors, {});
}

TokenFile::TokenFile(const fs::path& path, std::size_t raw_bytes, std::int64_t raw_fields)
    : name_(path.string()) {
  const std::string extension = extension_of(name_);
  if (extension == ".safetensors") {
    open_safetensors(path);
  } else if (extension == ".npy") {
    take_tokens(open_npy(path));
    const fs::path offsets = offsets_of_npy(path);
    if (std::error_code ignored; fs::exists(offsets, ignored)) take_offsets(open_npy(offsets));
  } else if (extension == ".bin") {
    open_raw(path, raw_bytes, raw_fields);
  } else {
    fail<UsageError>("data", "expected files of tokens called .safetensors, .npy or .bin, got {}", name_);
  }
}

void TokenFile::open_safetensors(const fs::path& path) {
  const auto file = std::make_shared<const Safetensors>(Safetensors::read(path));
  const auto array = [&](const std::string& tensor) {
    const Shape& shape = file->shape(tensor);
    return Array{type_of(*file, tensor, name_),
                 {shape.begin(), shape.end()},
                 [file, tensor](std::uint64_t offset, std::span<std::byte> to) {
                   file->copy_part(tensor, offset, to);
                 }};
  };
  take_tokens(array("tokens"));
  if (file->contains("offsets")) take_offsets(array("offsets"));
  file->check_digests();
}

TokenFile::Array TokenFile::open_npy(const fs::path& path) {
  const auto file = std::make_shared<const InputFile>(path);
  const NpyHeader header = read_npy_header(*file, path.string());
  const bool is_signed = header.kind == 'i';
  if ((!is_signed && header.kind != 'u') || header.bytes > (is_signed ? 8 : 4) ||
      !std::has_single_bit(header.bytes))
    fail("data", "{}: expected {}, got elements of type '{}{}'", path.string(), integer_types, header.kind,
         header.bytes);
  return {{header.bytes, is_signed},
          {header.shape.begin(), header.shape.end()},
          [file, begin = header.data](std::uint64_t offset, std::span<std::byte> to) {
            file->read(begin + offset, to);
          }};
}

void TokenFile::open_raw(const fs::path& path, std::size_t bytes, std::int64_t fields) {
  const auto file = std::make_shared<const InputFile>(path);
  raw_bytes_ = static_cast<std::int64_t>(bytes);
  const std::uint64_t step = bytes * static_cast<std::uint64_t>(fields);
  if (file->size() % step != 0)
    fail("data", "{}: expected a multiple of {} bytes, those of a step of {} tokens, got {} bytes", name_,
         step, fields, file->size());
  take_tokens({{bytes, false},
               {static_cast<std::int64_t>(file->size() / step), fields},
               [file](std::uint64_t offset, std::span<std::byte> to) { file->read(offset, to); }});
}

void TokenFile::take_tokens(Array array) {
  const auto& shape = array.shape;
  if (shape.empty() || shape.size() > 2)
    fail("data", "{}: expected tokens [steps] or [steps, fields], got shape {}", name_, to_string(shape));
  steps_ = shape[0];
  fields_ = shape.size() == 1 ? 1 : shape[1];
  if (fields_ < 1 || fields_ > most_fields)
    fail("data", "{}: expected 1 to {} fields a step, got tokens of shape {}", name_, most_fields,
         to_string(shape));
  if (steps_ < 1) fail("data", "{}: expected at least 1 step of tokens, got none", name_);
  type_ = array.type;
  bytes_ = std::move(array.bytes);
}

void TokenFile::take_offsets(const Array& array) {
  if (array.shape.size() != 1 || array.shape[0] < 2)
    fail("data", "{}: expected offsets [pieces + 1] of at least 1 piece, got shape {}", name_,
         to_string(array.shape));
  const std::int64_t count = array.shape[0];
  require_memory(name_, static_cast<double>(count) * sizeof(std::int64_t));
  offsets_.resize(static_cast<std::size_t>(count));
  std::vector<std::byte> bytes;
  for (std::int64_t first = 0; first < count; first += block_elements) {
    const auto here = std::span(offsets_).subspan(
        static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(block_elements, count - first)));
    bytes.resize(here.size() * array.type.bytes);
    array.bytes(static_cast<std::uint64_t>(first) * array.type.bytes, bytes);
    decode(array.type, bytes, here);
  }
  if (offsets_.front() != 0)
    fail("data", "{}: expected offsets that begin at 0, got {}", name_, offsets_.front());
  for (std::size_t i = 1; i < offsets_.size(); ++i)
    if (offsets_[i] < offsets_[i - 1])
      fail("data", "{}: expected offsets that do not decrease, got {} behind {} at index {}", name_,
           offsets_[i], offsets_[i - 1], i);
  if (offsets_.back() != steps_)
    fail("data", "{}: expected offsets that end at {}, the number of steps, got {}", name_, steps_,
         offsets_.back());
}

void TokenFile::read(std::int64_t first, std::span<const std::int64_t> sizes,
                     std::span<std::int32_t> to) const {
  assert(std::ssize(sizes) == fields_ && std::ssize(to) % fields_ == 0);
  assert(first >= 0 && first + std::ssize(to) / fields_ <= steps_);
  std::vector<std::byte> bytes(to.size() * type_.bytes);
  std::vector<std::int64_t> values(to.size());
  bytes_(static_cast<std::uint64_t>(first * fields_) * type_.bytes, bytes);
  decode(type_, bytes, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto field = i % sizes.size();
    if (values[i] < 0 || values[i] >= sizes[field])
      fail("data", "{}: expected tokens from 0 to {}{}, got {} in step {}", name_, sizes[field] - 1,
           fields_ == 1 ? "" : fmt::format(" in field {}", field), values[i],
           first + static_cast<std::int64_t>(i / sizes.size()));
    to[i] = static_cast<std::int32_t>(values[i]);
  }
}

std::vector<std::int64_t> TokenFile::largest(std::span<const std::int64_t> sizes) const {
  std::vector<std::int64_t> result(static_cast<std::size_t>(fields_));
  const std::int64_t steps = std::max<std::int64_t>(1, block_elements / fields_);
  std::vector<std::int32_t> block;
  for (std::int64_t first = 0; first < steps_; first += steps) {
    block.resize(static_cast<std::size_t>(std::min(steps, steps_ - first) * fields_));
    read(first, sizes, block);
    for (std::size_t i = 0; i < block.size(); ++i)
      result[i % result.size()] = std::max<std::int64_t>(result[i % result.size()], block[i]);
  }
  return result;
}

bool TokenFile::always_inside(std::span<const std::int64_t> sizes) const {
  return !type_.is_signed && std::ranges::all_of(sizes, [&](std::int64_t size) {
    return type_.bytes < 4 && size >= std::int64_t{1} << (8 * type_.bytes);
  });
}

}  // namespace linnet
