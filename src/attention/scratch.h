#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace linnet {

/// Working memory of one task, 64-byte aligned. It is the calling thread's own and kept for the thread's next
/// task, unless it is very large; a task inside a task gets memory of its own.
class Scratch {
 public:
  explicit Scratch(std::size_t floats) : buffer_(std::move(kept())) {
    if (buffer_.size < floats) {
      buffer_.memory.reset();
      buffer_.memory.reset(static_cast<float*>(::operator new(floats * sizeof(float), alignment)));
      buffer_.size = floats;
    }
  }
  ~Scratch() {
    if (buffer_.size > kept().size && buffer_.size <= most_kept) kept() = std::move(buffer_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// The next `floats` of it, rounded up to a cache line. The sum of all `take` must not exceed what was
  /// asked for.
  float* take(std::size_t floats) {
    float* memory = buffer_.memory.get() + taken_;
    taken_ += rounded(floats);
    return memory;
  }

  /// The same, set to 0.
  float* take_zeroed(std::size_t floats) {
    float* memory = take(floats);
    std::memset(memory, 0, floats * sizeof(float));
    return memory;
  }

  static constexpr std::size_t rounded(std::size_t floats) { return (floats + 15) / 16 * 16; }

 private:
  static constexpr std::align_val_t alignment{64};
  static constexpr std::size_t most_kept = std::size_t{1} << 23;

  struct Free {
    void operator()(float* memory) const { ::operator delete(memory, alignment); }
  };
  struct Buffer {
    std::unique_ptr<float, Free> memory;
    std::size_t size = 0;

    Buffer() = default;
    Buffer(Buffer&& other) noexcept : memory(std::move(other.memory)), size(std::exchange(other.size, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
      memory = std::move(other.memory);
      size = std::exchange(other.size, 0);
      return *this;
    }
  };

  static Buffer& kept() {
    thread_local Buffer buffer;
    return buffer;
  }

  Buffer buffer_;
  std::size_t taken_ = 0;
};

}  // namespace linnet
