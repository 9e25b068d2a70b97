#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "base/fail.h"
#include "base/names.h"
#include "io/digest.h"
#include "io/json.h"

namespace linnet {
namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;
constexpr std::size_t alignment = 64;

// Members of the metadata: the digest of the list of all tensors, and with a colon and a tensor's name behind
// it that of the tensor's elements.
constexpr std::string_view list_digest = "xxh3";
std::string digest_key(const std::string& tensor) { return fmt::format("{}:{}", list_digest, tensor); }
bool is_digest_key(std::string_view key) {
  return key == list_digest || (key.starts_with(list_digest) && key[list_digest.size()] == ':');
}

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
           shortened(size.dump(-1, ' ', false, Json::error_handler_t::replace)));
    sizes.push_back(size.get<std::int64_t>());
  }
  return sizes;
}

std::span<const std::byte> bytes_of(const NamedTensor& tensor) {
  const auto size = static_cast<std::size_t>(checked_size(tensor.shape, size_of(tensor.dtype)));
  return {static_cast<const std::byte*>(tensor.data), size * size_of(tensor.dtype)};
}

// A tensor as the list of all tensors has it.
struct Listed {
  std::string_view name, type, digest;
  const Shape* shape;
};

// The digest of what stands in the header: names, types, shapes and digests of the tensors in the order of
// their names, then the other metadata, every part followed by a newline.
std::string digest_of_list(std::vector<Listed> tensors, const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, {}, &Listed::name);
  Digest digest;
  const auto add = [&](std::string_view part) {
    digest.add(part);
    digest.add("\n");
  };
  for (const Listed& tensor : tensors) {
    add(tensor.name);
    add(tensor.type);
    add(to_string(*tensor.shape));
    add(tensor.digest);
  }
  for (const auto& [key, value] : metadata) {
    add(key);
    add(value);
  }
  return digest.text();
}

// The header's length in the first eight bytes of a file of `file_bytes` bytes.
std::uint64_t header_length(std::span<const std::byte> first, std::uint64_t file_bytes,
                            const std::string& origin) {
  if (first.size() < length_bytes)
    fail("safetensors",
         "{}: expected at least {} bytes, got {}: the file is truncated or none of this format", origin,
         length_bytes, first.size());
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<std::uint8_t>(first[i]);
  if (length > longest_header)
    fail("safetensors", "{}: expected a header of at most {} bytes, got {}", origin, longest_header, length);
  if (length > file_bytes - length_bytes)
    fail("safetensors",
         "{}: expected a header of {} bytes, got {}: the file is truncated or none of this format", origin,
         length, file_bytes - length_bytes);
  return length;
}

}  // namespace

Safetensors Safetensors::read(const std::filesystem::path& path) {
  const std::string origin = path.string();
  if (std::error_code ignored; !std::filesystem::is_regular_file(path, ignored))
    return parse(read_file(path), origin);
  auto file = std::make_shared<const InputFile>(path);
  std::array<std::byte, length_bytes> first;
  const auto start = std::span(first).first(std::min<std::uint64_t>(first.size(), file->size()));
  file->read(0, start);
  std::string header(header_length(start, file->size(), origin), '\0');
  file->read(length_bytes, std::as_writable_bytes(std::span(header)));
  Safetensors result = from_header(header, file->size() - length_bytes - header.size(), origin);
  result.file_ = std::move(file);
  return result;
}

Safetensors Safetensors::parse(std::string bytes, const std::string& origin) {
  const std::uint64_t length = header_length(std::as_bytes(std::span(bytes)), bytes.size(), origin);
  Safetensors result = from_header(std::string_view(bytes).substr(length_bytes, length),
                                   bytes.size() - length_bytes - length, origin);
  result.bytes_ = std::move(bytes);
  return result;
}

Safetensors Safetensors::from_header(std::string_view text, std::uint64_t data_bytes,
                                     const std::string& origin) {
  const auto damaged = [&]<class... A>(fmt::format_string<A...> message, A&&... arguments) {
    fail("safetensors", "{}: {}", origin, fmt::format(message, std::forward<A>(arguments)...));
  };
  const Json header = parse_json(text, origin + " (header)");
  if (!header.is_object()) damaged("expected a header that is an object, got {}", header.type_name());

  Safetensors result;
  result.origin_ = origin;
  const std::uint64_t data = length_bytes + text.size();
  for (const auto& [key, entry] : header.items()) {
    const std::string name = shortened(key);
    if (!entry.is_object()) damaged("expected an object for \"{}\", got {}", name, entry.type_name());
    if (key == "__metadata__") {
      for (const auto& [member, value] : entry.items()) {
        if (!value.is_string())
          damaged("expected text for \"{}\" of the metadata, got {}", shortened(member), value.type_name());
        result.metadata_[member] = value.get<std::string>();
      }
      continue;
    }
    const std::string where = fmt::format("{}: tensor \"{}\"", origin, name);
    const auto type = entry.find("dtype");
    if (type == entry.end() || !type->is_string())
      damaged("expected the dtype of tensor \"{}\", got none", name);
    const std::vector<std::int64_t> offsets = sizes_in(entry, "data_offsets", where);
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      damaged("expected data_offsets of tensor \"{}\" with a begin and an end behind it, got {}", name,
              shortened(to_string(offsets)));
    if (static_cast<std::uint64_t>(offsets[1]) > data_bytes)
      damaged("expected {} bytes of data, up to the end of tensor \"{}\", got {}: the file is truncated",
              offsets[1], name, data_bytes);
    Entry& tensor = result.entries_.emplace_back();
    tensor.name = key;
    tensor.type = type->get<std::string>();
    tensor.shape = sizes_in(entry, "shape", where);
    tensor.begin = data + static_cast<std::uint64_t>(offsets[0]);
    tensor.end = data + static_cast<std::uint64_t>(offsets[1]);
    if (const FileType* known = type_named(tensor.type)) {
      std::int64_t size = 0;
      try {
        size = checked_size(tensor.shape, known->bytes);
      } catch (const Error& error) {
        damaged("tensor \"{}\": {}", name, error.what());
      }
      if (static_cast<std::uint64_t>(size) * known->bytes != tensor.end - tensor.begin)
        damaged("expected {} bytes for tensor \"{}\", {} of shape {}, got {}",
                static_cast<std::uint64_t>(size) * known->bytes, name, tensor.type,
                shortened(to_string(tensor.shape)), tensor.end - tensor.begin);
    }
  }

  std::ranges::stable_sort(result.entries_, {},
                           [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t end = data;
  for (std::size_t i = 0; i < result.entries_.size(); ++i) {
    const Entry& entry = result.entries_[i];
    if (entry.begin != end)
      damaged("expected tensor \"{}\" at byte {} of the data, where the one before it ends, got {}",
              shortened(entry.name), end - data, entry.begin - data);
    end = entry.end;
    result.index_[entry.name] = i;
  }
  if (end != data + data_bytes)
    damaged("expected {} bytes, where the last tensor ends, got {}", end, data + data_bytes);
  result.take_digests();
  return result;
}

// A file has all digests or none: a name that was damaged must not hide one.
void Safetensors::take_digests() {
  std::map<std::string, std::string> digests;
  for (auto member = metadata_.begin(); member != metadata_.end();) {
    const auto next = std::next(member);
    if (is_digest_key(member->first)) digests.insert(metadata_.extract(member));
    member = next;
  }
  if (digests.empty()) return;
  const auto take = [&](const std::string& key) {
    const auto node = digests.extract(key);
    if (node.empty())
      fail("safetensors", "{}: expected the digest \"{}\" beside those of other tensors, got none", origin_,
           shortened(key));
    return node.mapped();
  };
  const std::string wanted = take(std::string(list_digest));
  std::vector<Listed> listed;
  for (Entry& entry : entries_) {
    entry.digest = take(digest_key(entry.name));
    listed.push_back({entry.name, entry.type, entry.digest, &entry.shape});
  }
  if (!digests.empty())
    fail("safetensors", "{}: expected digests of its tensors alone, got also \"{}\"", origin_,
         shortened(digests.begin()->first));
  if (const std::string found = digest_of_list(std::move(listed), metadata_); found != wanted)
    fail("safetensors",
         "{}: expected names, types and shapes with the digest {}, got a header with {}: it is damaged, or "
         "was changed by a program that kept the digests",
         origin_, shortened(wanted), found);
}

void Safetensors::read_bytes(std::uint64_t begin, std::span<std::byte> to) const {
  if (file_ != nullptr) return file_->read(begin, to);
  if (!to.empty()) std::memcpy(to.data(), bytes_.data() + begin, to.size());
}

void Safetensors::check_digest(const Entry& entry, const std::string& found) const {
  if (!entry.digest.empty() && entry.digest != found)
    fail("safetensors",
         "{}: expected elements with the digest {} in tensor \"{}\", got {}: they are damaged, or were "
         "changed by a program that kept the digests",
         origin_, shortened(entry.digest), shortened(entry.name), found);
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
    fail("safetensors",
         "{}: expected elements of F32, BF16, F64, I32, I64, U8 or I8 in tensor \"{}\", got {}", origin_,
         name, entry.type);
  return *type->dtype;
}

Tensor Safetensors::tensor(const std::string& name) const {
  const Entry& entry = find(name);
  if (entry.shape.size() > static_cast<std::size_t>(View<float>::max_rank))
    fail("safetensors", "{}: expected at most {} dimensions in tensor \"{}\", got shape {}", origin_,
         static_cast<int>(View<float>::max_rank), name, to_string(entry.shape));
  Tensor tensor(dtype(name), entry.shape);
  copy(name, {static_cast<std::byte*>(tensor.raw()), tensor.bytes()});
  return tensor;
}

void Safetensors::copy(const std::string& name, std::span<std::byte> to) const {
  const Entry& entry = find(name);
  dtype(name);  // refuses types that Linnet does not have
  if (to.size() != entry.end - entry.begin)
    fail("safetensors", "{}: expected memory for the {} bytes of tensor \"{}\", got {}", origin_,
         entry.end - entry.begin, name, to.size());
  read_bytes(entry.begin, to);
  if (!entry.digest.empty()) check_digest(entry, digest_of(to));
}

const std::string& Safetensors::type(const std::string& name) const { return find(name).type; }

void Safetensors::copy_part(const std::string& name, std::uint64_t offset, std::span<std::byte> to) const {
  const Entry& entry = find(name);
  const std::uint64_t bytes = entry.end - entry.begin;
  if (offset > bytes || to.size() > bytes - offset)
    fail("safetensors", "{}: expected a part of the {} bytes of tensor \"{}\", got {} bytes from byte {} on",
         origin_, bytes, name, to.size(), offset);
  read_bytes(entry.begin + offset, to);
}

void Safetensors::check_digests() const {
  std::vector<std::byte> piece(1 << 20);
  for (const Entry& entry : entries_) {
    if (entry.digest.empty()) continue;
    Digest digest;
    for (std::uint64_t begin = entry.begin; begin < entry.end;) {
      const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), entry.end - begin));
      read_bytes(begin, part);
      digest.add(part);
      begin += part.size();
    }
    check_digest(entry, digest.text());
  }
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
  std::map<std::string, std::string> digests = metadata;
  for (const auto& [key, value] : metadata)
    if (is_digest_key(key))
      fail("safetensors", "expected metadata under other names than those of digests, got \"{}\"", key);
  Json entries = Json::object();
  std::unordered_set<std::string> names = {"__metadata__"};
  std::vector<Listed> listed;
  std::size_t end = 0;
  for (const std::size_t i : order) {
    const NamedTensor& tensor = tensors[i];
    if (!names.insert(tensor.name).second)
      fail("safetensors", "expected every tensor under a name of its own, got \"{}\" twice", tensor.name);
    const std::size_t begin = end;
    end += bytes_of(tensor).size();
    const auto type = std::ranges::find(file_types, std::optional(tensor.dtype), &FileType::dtype);
    append_member(entries, tensor.name,
                  {{"dtype", type->name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}});
    const std::string& digest = digests[digest_key(tensor.name)] = digest_of(bytes_of(tensor));
    listed.push_back({tensor.name, type->name, digest, &tensor.shape});
  }
  digests[std::string(list_digest)] = digest_of_list(std::move(listed), metadata);
  Json header = Json::object();
  append_member(header, "__metadata__", digests);
  for (auto& [name, entry] : entries.items()) append_member(header, name, std::move(entry));
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    fail("safetensors", "expected names of tensors and metadata in UTF-8, got other bytes");
  }
  text.append((alignment - (length_bytes + text.size()) % alignment) % alignment, ' ');
  if (text.size() > longest_header)
    fail("safetensors", "expected a header of at most {} bytes, got {}", longest_header, text.size());

  std::string bytes;
  bytes.reserve(length_bytes + text.size() + end);
  for (std::size_t i = 0; i < length_bytes; ++i)
    bytes += static_cast<char>(std::uint64_t{text.size()} >> (8 * i));
  bytes += text;
  for (const std::size_t i : order) {
    const std::span<const std::byte> elements = bytes_of(tensors[i]);
    if (!elements.empty()) bytes.append(reinterpret_cast<const char*>(elements.data()), elements.size());
  }
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomically(path, encode_safetensors(tensors, metadata));
}

}  // namespace linnet
