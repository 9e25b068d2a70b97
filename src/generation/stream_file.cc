#include "generation/stream_file.h"

#include <string>
#include <string_view>

#include "base/fail.h"
#include "generation/snapshot.h"
#include "io/bytes.h"
#include "io/file.h"

namespace linnet {
namespace {

constexpr std::string_view magic = "LINNETSS";
constexpr std::uint32_t version = 1;
constexpr std::size_t checksum_bytes = sizeof(std::uint64_t);

/// More than a program that writes ten million tokens a second leaves in a year.
constexpr std::int64_t most_left = std::int64_t{1} << 48;

}  // namespace

void write_streams(const std::filesystem::path& path, std::span<const SavedStream> streams) {
  ByteWriter writer;
  writer.add(std::span(magic));
  writer.add(version);
  writer.add(static_cast<std::uint64_t>(streams.size()));
  for (const SavedStream& stream : streams) {
    writer.add(stream.left);
    writer.add(static_cast<std::uint64_t>(stream.tokens.size()));
    writer.add(std::span(stream.tokens));
    writer.add(static_cast<std::uint64_t>(stream.state.size()));
    writer.add(std::span(stream.state));
  }
  writer.add(checksum(writer.bytes()));
  const std::vector<std::byte>& bytes = writer.bytes();
  write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::vector<SavedStream> read_streams(const std::filesystem::path& path) {
  const std::string text = read_file(path), name = path.string();
  if (!text.starts_with(magic))
    fail("states", "{}: expected a file of saved streams, got {} bytes that do not begin with {}", name,
         text.size(), magic);
  const auto bytes = std::as_bytes(std::span(text));
  ByteReader reader(bytes.subspan(magic.size()), "states", name);
  if (const auto found = reader.take<std::uint32_t>(); found != version)
    fail("states", "{}: expected version {}, got {}", name, version, found);
  if (reader.rest() < checksum_bytes)
    fail("states", "{}: expected a number of streams and a checksum, got {} bytes", name, bytes.size());
  const auto body = bytes.first(bytes.size() - checksum_bytes);
  if (ByteReader(bytes.subspan(body.size()), "states", name).take<std::uint64_t>() != checksum(body))
    fail("states", "{}: expected bytes whose checksum is right, got damaged ones", name);

  reader = ByteReader(body.subspan(magic.size() + sizeof version), "states", name);
  const auto count = reader.take<std::uint64_t>();
  std::vector<SavedStream> streams;
  for (std::uint64_t i = 0; i < count; ++i) {
    SavedStream& stream = streams.emplace_back();
    stream.left = reader.take<std::int64_t>();
    stream.tokens = reader.take<std::int32_t>(reader.take<std::uint64_t>());
    stream.state = reader.take<std::byte>(reader.take<std::uint64_t>());
    if (stream.left < 0 || stream.left > most_left)
      fail("states", "{}: expected 0 … {} tokens left, got {}", name, most_left, stream.left);
  }
  if (streams.empty() || reader.rest() != 0)
    fail("states", "{}: expected at least 1 stream and nothing behind the last, got {} and {} bytes", name,
         count, reader.rest());
  return streams;
}

}  // namespace linnet
