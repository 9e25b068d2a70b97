#include "generation/snapshot.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string_view>

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
  if (snapshot.position < 0 || snapshot.position > State::most_position)
    fail(operation, "expected a position from 0 to 2^53, got {}", snapshot.position);
  if (next_input < 0 || next_input > std::numeric_limits<std::int32_t>::max())
    fail(operation, "expected an input from 0 to 2^31 - 1, got {}", next_input);
  snapshot.next_input = static_cast<std::int32_t>(next_input);
  snapshot.sampling.temperature = reader.take<double>();
  snapshot.sampling.top_k = reader.take<std::int64_t>();
  snapshot.sampling.top_p = reader.take<double>();
  snapshot.sampling.seed = reader.take<std::uint64_t>();
  const auto past = bytes.subspan(header_bytes, size);
  snapshot.past.assign(past.begin(), past.end());
  return snapshot;
}

std::string generation_keys(const Options& options, const Options& defaults) {
  constexpr std::string_view of_training_alone[] = {"model.objective", "model.dropout", "attention.redraw"};
  std::map<std::string, std::string> by_default, set;
  for (const Options::Row& row : defaults.rows()) by_default[row.key] = row.value;
  for (const Options::Row& row : options.rows())
    if (std::ranges::count(of_training_alone, row.key) == 0 && row.value != by_default[row.key])
      set[row.key] = row.value;
  std::string text;
  for (const auto& [key, value] : set) text += key + "=" + value + "\n";
  return text;
}

std::uint64_t fingerprint(const Model& model) {
  ModelConfig config = model.config(), of_defaults;
  Options options, defaults;
  add_options(options, config);
  add_options(defaults, of_defaults);
  const std::string keys = generation_keys(options, defaults);
  const Tensor all = model.values();
  const auto values = all.span<float>();
  return checksum(std::as_bytes(std::span(keys))) << 32 | checksum(std::as_bytes(values));
}

}  // namespace linnet
