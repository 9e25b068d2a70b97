#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/options.h"
#include "linnet/generation.h"

namespace linnet {

/// CRC-32.
std::uint64_t checksum(std::span<const std::byte> bytes);

/// A stream apart from its session: what `Session::save` writes. Its version is another one whenever the
/// layout of a state or what `fingerprint` covers changes (docs/compatibility.md). In bytes, little-endian:
///   "LINNETST", version (u32), 1 with a cache and 0 without (u32), the model's fingerprint (u64),
///   position (i64), next input (i64), temperature (f64), top_k (i64), top_p (f64), seed (u64), n (u64),
///   n bytes of the past, CRC-32 of all before it (u64):
/// 88 + n bytes. The past is the state of every layer, f32, or without a cache all inputs, i32; in a model of
/// several fields the next inputs of the later ones, i32, follow the state, and in one with relative inputs
/// the last numbers, f32. Version 2 ends with a prediction of numbers: what the
/// output head gave, and then the step before it, f32.
struct Snapshot {
  bool cache = true;
  bool prediction = false;  ///< whether it is of version 2
  std::uint64_t model = 0;
  std::int64_t position = 0;
  std::int32_t next_input = 0;
  SamplingOptions sampling;
  std::vector<std::byte> past;

  std::vector<std::byte> bytes() const;

  /// Throws Error where the bytes are no snapshot, one of another version or a damaged one.
  static Snapshot read(std::span<const std::byte> bytes);
};

/// The keys that decide what a model generates, "key=value" by line, sorted. Keys of training alone are left
/// out, and so are values equal to those of `defaults`: a new key does not change the text of older models.
std::string generation_keys(const Options& options, const Options& defaults);

/// Tells models apart by `generation_keys` and by every weight.
std::uint64_t fingerprint(const Model& model);

/// What tells the snapshots of a session's model from others. The model is to outlive it.
class ModelSnapshots {
 public:
  explicit ModelSnapshots(const Model& model) : model_(model) {}

  /// Of the model, computed when it is first asked for.
  std::uint64_t fingerprint();

  /// As `Snapshot::read`. Also throws Error for a snapshot of another model.
  Snapshot read(std::span<const std::byte> bytes);

 private:
  const Model& model_;
  std::optional<std::uint64_t> fingerprint_;
};

}  // namespace linnet
