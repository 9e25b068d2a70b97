#pragma once

#include <cstddef>
#include <cstdint>

namespace linnet {

/// Bytes of a line of the caches.
inline constexpr std::size_t cache_line = 64;

/// Bytes from an address to the line behind its own.
constexpr std::size_t to_next_line(std::uintptr_t at) { return cache_line - at % cache_line; }

/// Asks for the lines of `bytes` bytes ahead of their use. They need not be there.
inline void prefetch(std::uintptr_t at, std::size_t bytes) {
  for (const std::uintptr_t end = at + bytes; at < end; at += to_next_line(at))
    __builtin_prefetch(reinterpret_cast<const void*>(at));
}

}  // namespace linnet
