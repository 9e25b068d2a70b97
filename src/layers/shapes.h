#pragma once

#include <cstdint>

namespace linnet {

/// [batch · length, width] of dense [batch, length, width]; what has another rank, nothing say, as it is.
template <class View>
View rows(View x) {
  return x.rank() == 3 ? x.reshape({x.extent(0) * x.extent(1), x.extent(2)}) : x;
}

/// [batch, length, heads, head size] of dense [batch, length, width].
template <class View>
View by_heads(View x, std::int64_t heads) {
  return x.reshape({x.extent(0), x.extent(1), heads, x.extent(2) / heads});
}

}  // namespace linnet
