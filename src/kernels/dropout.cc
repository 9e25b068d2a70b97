#include <algorithm>
#include <cassert>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/pieces.h"

namespace linnet::kernels {

void dropout(Context& context, View<float> y, View<const float> x, float rate, const Random& random) {
  assert(0 <= rate && rate < 1 && y.dense() && x.dense() && y.size() == x.size());
  // Kept where the 32 bits, as a fraction of 2^32, are at least `rate`.
  const auto threshold =
      static_cast<std::uint32_t>(std::min(std::ldexp(static_cast<double>(rate), 32), 4294967295.0));
  const float factor = 1 / (1 - rate);
  static_assert(piece_elements % 4 == 0);
  parallel_blocks(context, x.size(), piece_elements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += 4) {
      const auto words = random.block(static_cast<std::uint64_t>(i / 4));
      const std::int64_t n = std::min<std::int64_t>(4, end - i);
      for (std::int64_t k = 0; k < n; ++k)
        y.data()[i + k] = words[static_cast<std::size_t>(k)] < threshold ? 0 : x.data()[i + k] * factor;
    }
  });
}

}  // namespace linnet::kernels
