#pragma once

// Results as hashes of their bits. A test compares them with constants that are stored for each instruction
// set, and so with the processor on which the constants were written down. Where a change is meant to change
// results, the failures print the new constants.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "linnet/instruction_set.h"
#include "linnet/tensor.h"

namespace linnet {

/// The 64-bit FNV-1a hash (Fowler, Noll and Vo) of the bytes of all numbers added, in order.
class BitHash {
 public:
  template <class T>
  BitHash& add(std::span<T> numbers) {
    for (const std::byte byte : std::as_bytes(numbers))
      value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
    return *this;
  }
  template <class Numbers>
  BitHash& add(const Numbers& numbers) {
    return add(std::span(numbers));
  }
  BitHash& add(const Tensor& f32) { return add(f32.span<float>()); }
  BitHash& add(double number) { return add(std::span(&number, 1)); }

  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// What one result hashes to on each instruction set.
struct StoredBits {
  std::uint64_t avx3 = 0, avx2 = 0, sse4 = 0, scalar = 0;

  /// Of the set with that name; nothing for EMU128, whose vectors the compiler chooses.
  std::optional<std::uint64_t> of(const std::string& set) const {
    if (set == "AVX3") return avx3;
    if (set == "AVX2") return avx2;
    if (set == "SSE4") return sse4;
    if (set == "SCALAR") return scalar;
    return std::nullopt;
  }
};

/// Expects `result` to have the stored bits of the instruction set that is named, by default the one in use.
inline void expect_bits(const std::string& what, const BitHash& result, const StoredBits& stored,
                        const std::string& set = instruction_set()) {
  const std::optional<std::uint64_t> expected = stored.of(set);
  if (!expected || *expected == result.value()) return;
  char found[32], wanted[32];
  std::snprintf(found, sizeof found, "0x%016llx", static_cast<unsigned long long>(result.value()));
  std::snprintf(wanted, sizeof wanted, "0x%016llx", static_cast<unsigned long long>(*expected));
  ADD_FAILURE() << what << " on " << set << ": expected bits that hash to " << wanted << ", got " << found;
}

}  // namespace linnet
