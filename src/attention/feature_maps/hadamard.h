#pragma once

#include <cstdint>

namespace linnet {

/// Diagonals of signs in a block of Hadamard directions.
inline constexpr std::int64_t kDiagonals = 3;

/// x = H x with the Hadamard matrix of Sylvester's order, n a power of two: n log2(n) additions.
template <class T>
void hadamard_transform(T* x, std::int64_t n) {
  for (std::int64_t half = 1; half < n; half *= 2)
    for (std::int64_t first = 0; first < n; first += 2 * half)
      for (std::int64_t i = first; i < first + half; ++i) {
        const T a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
}

}  // namespace linnet
