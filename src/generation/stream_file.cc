#include "generation/stream_file.h"

#include <cstring>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "generation/snapshot.h"
#include "io/file.h"

namespace linnet {
namespace {

constexpr std::string_view magic = "LINNETSS";
constexpr std::uint32_t version = 1;

std::uint64_t checksum_of(std::string_view bytes) { return checksum(std::as_bytes(std::span(bytes))); }

template <class T>
void append(std::string& bytes, const T* values, std::size_t count) {
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}
template <class T>
void append(std::string& bytes, T value) {
  append(bytes, &value, 1);
}

/// Takes values from the front of a file's bytes.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  template <class T>
  std::vector<T> take(std::uint64_t count) {
    if (count > bytes_.size() / sizeof(T))
      fail("states", "{}: expected {} more values of {} bytes, got {} bytes", name_, count, sizeof(T),
           bytes_.size());
    std::vector<T> values(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(values.data(), bytes_.data(), values.size() * sizeof(T));
    bytes_.remove_prefix(values.size() * sizeof(T));
    return values;
  }
  template <class T>
  T take() {
    return take<T>(1).front();
  }
  std::size_t rest() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  std::string_view name_;
};

}  // namespace

void write_streams(const std::filesystem::path& path, std::span<const SavedStream> streams) {
  std::string bytes(magic);
  append(bytes, version);
  append(bytes, static_cast<std::uint64_t>(streams.size()));
  for (const SavedStream& stream : streams) {
    append(bytes, stream.left);
    append(bytes, static_cast<std::uint64_t>(stream.tokens.size()));
    append(bytes, stream.tokens.data(), stream.tokens.size());
    append(bytes, static_cast<std::uint64_t>(stream.state.size()));
    append(bytes, stream.state.data(), stream.state.size());
  }
  append(bytes, checksum_of(bytes));
  write_file_atomically(path, bytes);
}

std::vector<SavedStream> read_streams(const std::filesystem::path& path) {
  const std::string bytes = read_file(path), name = path.string();
  if (!bytes.starts_with(magic))
    fail("states", "{}: expected a file of saved streams, got {} bytes that do not begin with {}", name,
         bytes.size(), magic);
  const std::string_view all = bytes;
  Reader reader(all.substr(magic.size()), name);
  if (const auto found = reader.take<std::uint32_t>(); found != version)
    fail("states", "{}: expected version {}, got {}", name, version, found);
  if (reader.rest() < sizeof(std::uint64_t))
    fail("states", "{}: expected a number of streams and a checksum, got {} bytes", name, bytes.size());
  const std::string_view body = all.substr(0, all.size() - sizeof(std::uint64_t));
  std::uint64_t found = 0;
  std::memcpy(&found, all.data() + body.size(), sizeof found);
  if (found != checksum_of(body))
    fail("states", "{}: expected bytes whose checksum is right, got damaged ones", name);

  reader = Reader(body.substr(magic.size() + sizeof version), name);
  const auto count = reader.take<std::uint64_t>();
  std::vector<SavedStream> streams;
  for (std::uint64_t i = 0; i < count; ++i) {
    SavedStream& stream = streams.emplace_back();
    stream.left = reader.take<std::int64_t>();
    stream.tokens = reader.take<std::int32_t>(reader.take<std::uint64_t>());
    stream.state = reader.take<std::byte>(reader.take<std::uint64_t>());
    if (stream.left < 0) fail("states", "{}: expected at least 0 tokens left, got {}", name, stream.left);
  }
  if (streams.empty() || reader.rest() != 0)
    fail("states", "{}: expected at least 1 stream and nothing behind the last, got {} and {} bytes", name,
         count, reader.rest());
  return streams;
}

}  // namespace linnet
