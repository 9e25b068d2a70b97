#include "generation/snapshot.h"

#include <zlib.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "model/config.h"

namespace linnet {
namespace {

constexpr const char* operation = "snapshot";
constexpr char magic[8] = {'L', 'I', 'N', 'N', 'E', 'T', 'S', 'T'};
constexpr std::uint32_t version = 1;
constexpr std::size_t header_bytes = 80, checksum_bytes = 8;

class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}

  void add(const void* from, std::size_t bytes) {
    std::memcpy(to_, from, bytes);
    to_ += bytes;
  }
  template <class T>
  void add(const T& value) {
    add(&value, sizeof value);
  }

 private:
  std::byte* to_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

std::vector<std::byte> Snapshot::bytes() const {
  std::vector<std::byte> result(header_bytes + past.size() + checksum_bytes);
  Writer writer(result.data());
  writer.add(magic);
  writer.add(version);
  writer.add(static_cast<std::uint32_t>(cache));
  writer.add(model);
  writer.add(position);
  writer.add(static_cast<std::int64_t>(next_input));
  writer.add(sampling.temperature);
  writer.add(sampling.top_k);
  writer.add(sampling.top_p);
  writer.add(sampling.seed);
  writer.add(static_cast<std::uint64_t>(past.size()));
  if (!past.empty()) writer.add(past.data(), past.size());
  writer.add(checksum(std::span(result).first(result.size() - checksum_bytes)));
  return result;
}

Snapshot Snapshot::read(std::span<const std::byte> bytes) {
  if (bytes.size() < header_bytes + checksum_bytes)
    fail(operation, "expected at least {} bytes, got {}", header_bytes + checksum_bytes, bytes.size());
  if (std::memcmp(bytes.data(), magic, sizeof magic) != 0)
    fail(operation, "expected bytes that begin with LINNETST, got others");
  Reader reader(bytes.subspan(sizeof magic));
  const auto found = reader.take<std::uint32_t>();
  if (found != version) fail(operation, "expected version {}, got {}", version, found);
  // First of all the size, so that no more is read than there is where the caller's is wrong.
  const auto size = Reader(bytes.subspan(header_bytes - sizeof(std::uint64_t))).take<std::uint64_t>();
  if (size != bytes.size() - header_bytes - checksum_bytes)
    fail(operation, "expected {} bytes of the past, got {}", size,
         bytes.size() - header_bytes - checksum_bytes);
  const auto body = bytes.first(bytes.size() - checksum_bytes);
  if (Reader(bytes.subspan(body.size())).take<std::uint64_t>() != checksum(body))
    fail(operation, "expected bytes whose checksum is right, got damaged ones");
  Snapshot snapshot;
  snapshot.cache = reader.take<std::uint32_t>() != 0;
  snapshot.model = reader.take<std::uint64_t>();
  snapshot.position = reader.take<std::int64_t>();
  const auto next_input = reader.take<std::int64_t>();
  if (snapshot.position < 0 || next_input < 0 || next_input > std::numeric_limits<std::int32_t>::max())
    fail(operation, "expected a position and an input of at least 0, got {} and {}", snapshot.position,
         next_input);
  snapshot.next_input = static_cast<std::int32_t>(next_input);
  snapshot.sampling.temperature = reader.take<double>();
  snapshot.sampling.top_k = reader.take<std::int64_t>();
  snapshot.sampling.top_p = reader.take<double>();
  snapshot.sampling.seed = reader.take<std::uint64_t>();
  const auto past = bytes.subspan(header_bytes, size);
  snapshot.past.assign(past.begin(), past.end());
  return snapshot;
}

std::uint64_t fingerprint(const Model& model) {
  ModelConfig config = model.config();
  Options options;
  add_options(options, config);
  const std::string text = options.to_json().dump();
  const Tensor all = model.values();
  const auto values = all.span<float>();
  return checksum(std::as_bytes(std::span(text))) << 32 | checksum(std::as_bytes(values));
}

}  // namespace linnet
