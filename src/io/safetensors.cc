#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/fail.h"
#include "base/names.h"
#include "io/file.h"
#include "io/json.h"

namespace linnet {
namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;
constexpr std::size_t alignment = 64;

// Every type that the format names, with its size; those that Linnet reads with their DType.
struct FileType {
  const char* name;
  std::size_t bytes;
  std::optional<DType> dtype = std::nullopt;
};
constexpr std::array<FileType, 15> file_types = {{{"F32", 4, DType::f32},
                                                  {"BF16", 2, DType::bf16},
                                                  {"F64", 8, DType::f64},
                                                  {"I32", 4, DType::i32},
                                                  {"I64", 8, DType::i64},
                                                  {"U8", 1, DType::u8},
                                                  {"F16", 2},
                                                  {"BOOL", 1},
                                                  {"I8", 1, DType::i8},
                                                  {"I16", 2},
                                                  {"U16", 2},
                                                  {"U32", 4},
                                                  {"U64", 8},
                                                  {"F8_E4M3", 1},
                                                  {"F8_E5M2", 1}}};

const FileType* type_named(const std::string& name) {
  const auto found = std::ranges::find(file_types, name, &FileType::name);
  return found == file_types.end() ? nullptr : &*found;
}

// A list of integers of at least 0, as shapes and offsets are.
std::vector<std::int64_t> sizes_in(const Json& entry, const char* member, const std::string& where) {
  const auto list = entry.find(member);
  if (list == entry.end() || !list->is_array())
    fail("safetensors", "{}: expected a list \"{}\", got {}", where, member,
         list == entry.end() ? "none" : list->type_name());
  std::vector<std::int64_t> sizes;
  for (const Json& size : *list) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
      fail("safetensors", "{}: expected integers of at least 0 in \"{}\", got {}", where, member,
           size.dump());
    sizes.push_back(size.get<std::int64_t>());
  }
  return sizes;
}

}  // namespace

Safetensors Safetensors::read(const std::filesystem::path& path) {
  return parse(read_file(path), path.string());
}

Safetensors Safetensors::parse(std::string bytes, const std::string& origin) {
  const auto damaged = [&]<class... A>(fmt::format_string<A...> message, A&&... arguments) {
    fail("safetensors", "{}: {}", origin, fmt::format(message, std::forward<A>(arguments)...));
  };
  if (bytes.size() < length_bytes) damaged("expected at least {} bytes, got {}", length_bytes, bytes.size());
  std::uint64_t header_bytes = 0;
  for (std::size_t i = length_bytes; i-- > 0;)
    header_bytes = header_bytes << 8 | static_cast<std::uint8_t>(bytes[i]);
  if (header_bytes > longest_header)
    damaged("expected a header of at most {} bytes, got {}", longest_header, header_bytes);
  if (header_bytes > bytes.size() - length_bytes)
    damaged("expected a header of {} bytes, got a file that ends {} bytes after its start", header_bytes,
            bytes.size() - length_bytes);
  const Json header =
      parse_json(std::string_view(bytes).substr(length_bytes, header_bytes), origin + " (header)");
  if (!header.is_object()) damaged("expected a header that is an object, got {}", header.type_name());

  Safetensors result;
  const std::size_t data = length_bytes + header_bytes;
  const std::size_t data_bytes = bytes.size() - data;
  for (const auto& [name, entry] : header.items()) {
    if (!entry.is_object()) damaged("expected an object for \"{}\", got {}", name, entry.type_name());
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string())
          damaged("expected text for \"{}\" of the metadata, got {}", key, value.type_name());
        result.metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    const std::string where = fmt::format("{}: tensor \"{}\"", origin, name);
    const auto type = entry.find("dtype");
    if (type == entry.end() || !type->is_string())
      damaged("expected the dtype of tensor \"{}\", got none", name);
    const std::vector<std::int64_t> offsets = sizes_in(entry, "data_offsets", where);
    if (offsets.size() != 2 || offsets[0] > offsets[1] || static_cast<std::uint64_t>(offsets[1]) > data_bytes)
      damaged("expected data_offsets of tensor \"{}\" between 0 and {}, got {}", name, data_bytes,
              to_string(offsets));
    Entry& tensor = result.entries_.emplace_back();
    tensor.name = name;
    tensor.type = type->get<std::string>();
    tensor.shape = sizes_in(entry, "shape", where);
    tensor.begin = data + static_cast<std::size_t>(offsets[0]);
    tensor.end = data + static_cast<std::size_t>(offsets[1]);
    if (const FileType* known = type_named(tensor.type)) {
      std::int64_t size = 0;
      try {
        size = checked_size(tensor.shape, known->bytes);
      } catch (const Error& error) {
        damaged("tensor \"{}\": {}", name, error.what());
      }
      if (static_cast<std::size_t>(size) * known->bytes != tensor.end - tensor.begin)
        damaged("expected {} bytes for tensor \"{}\", {} of shape {}, got {}",
                static_cast<std::size_t>(size) * known->bytes, name, tensor.type, to_string(tensor.shape),
                tensor.end - tensor.begin);
    }
  }

  std::ranges::stable_sort(result.entries_, {},
                           [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  std::size_t end = data;
  for (std::size_t i = 0; i < result.entries_.size(); ++i) {
    const Entry& entry = result.entries_[i];
    if (entry.begin != end)
      damaged("expected tensor \"{}\" at byte {} of the data, where the one before it ends, got {}",
              entry.name, end - data, entry.begin - data);
    end = entry.end;
    result.index_[entry.name] = i;
  }
  if (end != bytes.size())
    damaged("expected {} bytes, where the last tensor ends, got {}", end, bytes.size());
  result.origin_ = origin;
  result.bytes_ = std::move(bytes);
  return result;
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

bool Safetensors::contains(const std::string& name) const { return index_.contains(name); }

const Shape& Safetensors::shape(const std::string& name) const { return find(name).shape; }

DType Safetensors::dtype(const std::string& name) const {
  const Entry& entry = find(name);
  const FileType* type = type_named(entry.type);
  if (type == nullptr || !type->dtype)
    fail("safetensors", "{}: expected elements of F32, BF16, F64, I32, I64 or U8 in tensor \"{}\", got {}",
         origin_, name, entry.type);
  return *type->dtype;
}

Tensor Safetensors::tensor(const std::string& name) const {
  const Entry& entry = find(name);
  if (entry.shape.size() > static_cast<std::size_t>(View<float>::max_rank))
    fail("safetensors", "{}: expected at most {} dimensions in tensor \"{}\", got shape {}", origin_,
         static_cast<int>(View<float>::max_rank), name, to_string(entry.shape));
  Tensor tensor(dtype(name), entry.shape);
  if (tensor.bytes() != 0) std::memcpy(tensor.raw(), bytes_.data() + entry.begin, tensor.bytes());
  return tensor;
}

const Safetensors::Entry& Safetensors::find(const std::string& name) const {
  const auto found = index_.find(name);
  if (found != index_.end()) return entries_[found->second];
  const std::string nearest = nearest_name(name, names());
  fail("safetensors", "{}: expected a tensor \"{}\", got {} others{}", origin_, name, entries_.size(),
       nearest.empty() ? "" : fmt::format(", \"{}\" among them", nearest));
}

std::string encode_safetensors(std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return size_of(tensors[i].dtype); });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t end = 0;
  for (const std::size_t i : order) {
    const NamedTensor& tensor = tensors[i];
    if (header.contains(tensor.name) || tensor.name == "__metadata__")
      fail("safetensors", "expected every tensor under a name of its own, got \"{}\" twice", tensor.name);
    const std::size_t begin = end;
    end +=
        static_cast<std::size_t>(checked_size(tensor.shape, size_of(tensor.dtype))) * size_of(tensor.dtype);
    const auto type = std::ranges::find(file_types, std::optional(tensor.dtype), &FileType::dtype);
    header[tensor.name] = {{"dtype", type->name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((alignment - (length_bytes + text.size()) % alignment) % alignment, ' ');
  if (text.size() > longest_header)
    fail("safetensors", "expected a header of at most {} bytes, got {}", longest_header, text.size());

  std::string bytes;
  bytes.reserve(length_bytes + text.size() + end);
  for (std::size_t i = 0; i < length_bytes; ++i)
    bytes += static_cast<char>(std::uint64_t{text.size()} >> (8 * i));
  bytes += text;
  for (const std::size_t i : order) {
    const NamedTensor& tensor = tensors[i];
    const std::size_t size = static_cast<std::size_t>(checked_size(tensor.shape)) * size_of(tensor.dtype);
    if (size != 0) bytes.append(static_cast<const char*>(tensor.data), size);
  }
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomically(path, encode_safetensors(tensors, metadata));
}

}  // namespace linnet
