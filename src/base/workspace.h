#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet {

/// Memory that is taken and given back in the order of a stack. It grows to the largest use and is then one
/// piece, so that later uses of that size allocate nothing.
class Arena {
 public:
  struct Mark {
    std::size_t block = 0, offset = 0, taken = 0;
  };

  static constexpr std::size_t alignment = 64;

  Mark mark() const { return at_; }
  void release(const Mark& mark) noexcept;

  /// 64-byte aligned, undefined values.
  void* take(std::size_t bytes);

  std::size_t bytes() const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Block {
    explicit Block(std::size_t bytes);
    std::unique_ptr<std::byte[], Free> memory;
    std::size_t bytes;
  };

  std::vector<Block> blocks_;
  Mark at_;
  std::size_t most_taken_ = 0;
};

/// Working memory of one scope, from the context that it is given: what is taken lives as long as this
/// object. Scopes nest.
class Workspace {
 public:
  explicit Workspace(Context& context);
  ~Workspace() { arena_.release(mark_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// `count` elements, undefined values, 64-byte aligned.
  template <class T>
  std::span<T> array(std::int64_t count) {
    const std::int64_t size = checked_size(std::array{count}, sizeof(T));
    return {static_cast<T*>(arena_.take(static_cast<std::size_t>(size) * sizeof(T))),
            static_cast<std::size_t>(size)};
  }
  float* take(std::size_t floats) { return static_cast<float*>(arena_.take(floats * sizeof(float))); }

  /// The same, set to 0.
  float* take_zeroed(std::size_t floats) {
    float* memory = take(floats);
    std::memset(memory, 0, floats * sizeof(float));
    return memory;
  }

  /// [rows, columns], undefined values.
  View<float> take(std::int64_t rows, std::int64_t columns) {
    const std::int64_t size = checked_size(std::array{rows, columns}, sizeof(float));
    return View<float>(take(static_cast<std::size_t>(size)), {rows, columns});
  }

  /// The same, f32 or bf16.
  FloatView take_floats(DType type, std::int64_t rows, std::int64_t columns) {
    if (type != DType::bf16) return take(rows, columns);
    const std::int64_t size = checked_size(std::array{rows, columns}, sizeof(bf16));
    return View<bf16>(array<bf16>(size).data(), {rows, columns});
  }

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace linnet
