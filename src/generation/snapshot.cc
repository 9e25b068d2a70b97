#include "generation/snapshot.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "base/fail.h"
#include "io/bytes.h"
#include "model/access.h"
#include "model/config.h"

namespace linnet {
namespace {

constexpr const char* operation = "snapshot";
constexpr std::string_view magic = "LINNETST";
constexpr std::uint32_t snapshot_version = 1, version_with_prediction = 2;
constexpr std::size_t header_bytes = 80, checksum_bytes = 8;

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

std::vector<std::byte> Snapshot::bytes() const {
  ByteWriter writer;
  writer.reserve(header_bytes + past.size() + checksum_bytes);
  writer.add(std::span(magic));
  writer.add(prediction ? version_with_prediction : snapshot_version);
  writer.add(static_cast<std::uint32_t>(cache));
  writer.add(model);
  writer.add(position);
  writer.add(static_cast<std::int64_t>(next_input));
  writer.add(sampling.temperature);
  writer.add(sampling.top_k);
  writer.add(sampling.top_p);
  writer.add(sampling.seed);
  writer.add(static_cast<std::uint64_t>(past.size()));
  writer.add(std::span(past));
  writer.add(checksum(writer.bytes()));
  return writer.release();
}

Snapshot Snapshot::read(std::span<const std::byte> bytes) {
  if (bytes.size() < header_bytes + checksum_bytes)
    fail(operation, "expected at least {} bytes, got {}", header_bytes + checksum_bytes, bytes.size());
  ByteReader reader(bytes, operation);
  if (!std::ranges::equal(reader.take<char>(magic.size()), magic))
    fail(operation, "expected bytes that begin with {}, got others", magic);
  const auto found = reader.take<std::uint32_t>();
  if (found != snapshot_version && found != version_with_prediction)
    fail(operation, "expected version {} or {}, got {}", snapshot_version, version_with_prediction, found);
  Snapshot snapshot;
  snapshot.prediction = found == version_with_prediction;
  const auto cache = reader.take<std::uint32_t>();
  snapshot.cache = cache == 1;
  snapshot.model = reader.take<std::uint64_t>();
  snapshot.position = reader.take<std::int64_t>();
  const auto next_input = reader.take<std::int64_t>();
  snapshot.sampling.temperature = reader.take<double>();
  snapshot.sampling.top_k = reader.take<std::int64_t>();
  snapshot.sampling.top_p = reader.take<double>();
  snapshot.sampling.seed = reader.take<std::uint64_t>();
  const auto size = reader.take<std::uint64_t>();
  if (size != reader.rest() - checksum_bytes)
    fail(operation, "expected {} bytes of the past, got {}", size, reader.rest() - checksum_bytes);
  const auto past = reader.take_bytes(size);
  if (reader.take<std::uint64_t>() != checksum(bytes.first(bytes.size() - checksum_bytes)))
    fail(operation, "expected bytes whose checksum is right, got damaged ones");
  if (cache > 1) fail(operation, "expected a snapshot with or without a cache, 1 or 0, got {}", cache);
  if (snapshot.position < 0 || snapshot.position > State::most_position)
    fail(operation, "expected a position from 0 to 2^53, got {}", snapshot.position);
  if (next_input < 0 || next_input > std::numeric_limits<std::int32_t>::max())
    fail(operation, "expected an input from 0 to 2^31 - 1, got {}", next_input);
  snapshot.next_input = static_cast<std::int32_t>(next_input);
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
  const Tensor all = values_of(model);
  const auto values = all.span<float>();
  return checksum(std::as_bytes(std::span(keys))) << 32 | checksum(std::as_bytes(values));
}

std::uint64_t ModelSnapshots::fingerprint() {
  if (!fingerprint_) fingerprint_ = linnet::fingerprint(model_);
  return *fingerprint_;
}

Snapshot ModelSnapshots::read(std::span<const std::byte> bytes) {
  Snapshot snapshot = Snapshot::read(bytes);
  if (snapshot.model != fingerprint()) {
    constexpr int bits_of_weights = 32;
    const bool same_settings = snapshot.model >> bits_of_weights == fingerprint() >> bits_of_weights;
    fail("restore", "expected a snapshot of this model, {:016x}, got {:016x}, one of other {}", fingerprint(),
         snapshot.model, same_settings ? "weights" : "settings, as model.weights or the sizes");
  }
  return snapshot;
}

}  // namespace linnet
