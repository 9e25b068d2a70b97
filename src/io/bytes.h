#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace linnet {

/// Takes values from the front of bytes that were written elsewhere, little-endian. The bytes stay the
/// caller's.
class ByteReader {
 public:
  /// `operation` and `origin`, such as a file's name, begin the sentence of an error. An empty origin is left
  /// out.
  explicit ByteReader(std::span<const std::byte> bytes, const char* operation, std::string origin = {})
      : rest_(bytes), operation_(operation), origin_(std::move(origin)) {}

  /// The next `count` bytes. Throws Error where there are fewer; nothing is taken then.
  std::span<const std::byte> take_bytes(std::uint64_t count) {
    check(count, 1);
    const auto taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  /// The next `count` values. Throws Error where there are fewer bytes, before memory is taken.
  template <class T>
  std::vector<T> take(std::uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    check(count, sizeof(T));
    std::vector<T> values(static_cast<std::size_t>(count));
    const auto from = take_bytes(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), from.data(), from.size());
    return values;
  }

  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    check(1, sizeof(T));
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }

  /// Bytes that are left.
  std::size_t rest() const { return rest_.size(); }

 private:
  void check(std::uint64_t count, std::size_t bytes) const {
    if (count <= rest_.size() / bytes) return;
    fail(operation_, "{}{}expected {} more values of {} bytes, got {} bytes", origin_,
         origin_.empty() ? "" : ": ", count, bytes, rest_.size());
  }

  std::span<const std::byte> rest_;
  const char* operation_;
  std::string origin_;
};

/// Appends values to bytes, little-endian: what ByteReader takes.
class ByteWriter {
 public:
  template <class T>
  void add(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = std::as_bytes(values);
    const std::size_t before = bytes_.size();
    bytes_.resize(before + bytes.size());
    std::ranges::copy(bytes, bytes_.data() + before);
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(T value) { add(std::span<const T>(&value, 1)); }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> release() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace linnet
