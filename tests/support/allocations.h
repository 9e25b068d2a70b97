#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "base/sanitizers.h"

// Everything that asks for memory in the program comes through here. For one source of a program: it defines
// malloc.

namespace linnet::allocations {

inline std::atomic<std::int64_t> count{0};
inline std::atomic<std::int64_t> large{0};  ///< of those, at least `large_bytes` each
inline std::atomic<std::int64_t> left{std::numeric_limits<std::int64_t>::max()};  ///< before memory is short

inline constexpr std::size_t large_bytes = 1 << 15;

/// Counts one, and says whether it is to succeed.
inline bool next(std::size_t bytes) {
  count.fetch_add(1, std::memory_order_relaxed);
  if (bytes >= large_bytes) large.fetch_add(1, std::memory_order_relaxed);
  return left.fetch_sub(1, std::memory_order_relaxed) > 0;
}

#if defined(LINNET_ADDRESS_SANITIZER) || defined(LINNET_THREAD_SANITIZER)
inline constexpr bool can_fail = false;  // sanitizers have a malloc of their own, which reports only
#else
inline constexpr bool can_fail = true;
#endif

// The thread sanitizer's hooks are called for malloc alone, and tensors are aligned.
#if defined(LINNET_THREAD_SANITIZER)
inline constexpr bool counts_tensors = false;
#else
inline constexpr bool counts_tensors = true;
#endif

/// While it lives, `allowed` more allocations succeed and all others fail.
class Short {
 public:
  explicit Short(std::int64_t allowed) { left = allowed; }
  ~Short() { left = std::numeric_limits<std::int64_t>::max(); }
  Short(const Short&) = delete;
  Short& operator=(const Short&) = delete;
};

}  // namespace linnet::allocations

#if defined(LINNET_ADDRESS_SANITIZER) || defined(LINNET_THREAD_SANITIZER)
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));
namespace {
[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t bytes) { linnet::allocations::next(bytes); },
    [](const volatile void*) {});
}
#else
#pragma GCC visibility push(default)  // so that shared libraries find these
extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_memalign(std::size_t, std::size_t);
extern "C" void* malloc(std::size_t bytes) {
  return linnet::allocations::next(bytes) ? __libc_malloc(bytes) : nullptr;
}
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return linnet::allocations::next(bytes) ? __libc_memalign(alignment, bytes) : nullptr;
}
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = aligned_alloc(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
#pragma GCC visibility pop
#endif
