#pragma once

#include <algorithm>
#include <cstdint>

#include "base/parallel.h"
#include "linnet/tensor.h"

namespace linnet::kernels {

/// Elements of one piece of parallel elementwise work: enough to repay its dispatch, small enough to share
/// out evenly.
inline constexpr std::int64_t piece_elements = 1 << 14;

/// Rows of `columns` elements that make up about one piece.
inline std::int64_t rows_of_piece(std::int64_t columns) {
  return std::max<std::int64_t>(1, piece_elements / std::max<std::int64_t>(1, columns));
}

/// A view of rank 0 to 2 as rows: rank 1 is one row.
template <class T>
View<T> as_rows(View<T> x) {
  if (x.rank() == 2) return x;
  return View<T>(x.data(), {1, x.size()});
}

/// Calls body(n, pointers…) for stretches of n elements that together cover views of one shape, rank up to 2.
template <class Body, class... T>
void parallel_pieces(Context& context, Body body, View<T>... views) {
  const auto first = [](auto head, auto...) { return as_rows(head); }(views...);
  if ((views.dense() && ...)) {
    parallel_blocks(context, first.size(), piece_elements, [&](std::int64_t begin, std::int64_t end) {
      body(end - begin, (views.data() + begin)...);
    });
    return;
  }
  parallel_blocks(context, first.extent(0), rows_of_piece(first.extent(1)),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) body(first.extent(1), as_rows(views).at(i)...);
                  });
}

}  // namespace linnet::kernels
