#include "kernels/pooling.h"

#include <algorithm>
#include <cassert>

#include "kernels/pieces.h"

namespace linnet::kernels {
namespace {

std::int64_t rows_of(std::span<const std::int64_t> key_lengths, std::int64_t b, std::int64_t length) {
  return key_lengths.empty() ? length : key_lengths[static_cast<std::size_t>(b)];
}

}  // namespace

void mean_rows(Context& context, View<float> y, View<const float> x,
               std::span<const std::int64_t> key_lengths) {
  constexpr std::int64_t together = 64;  // columns of a piece, summed in f64 over the rows in order
  const std::int64_t d = x.extent(2), pieces = (d + together - 1) / together;
  parallel_for(context, x.extent(0) * pieces, [&](std::int64_t piece) {
    const std::int64_t b = piece / pieces, first = piece % pieces * together;
    const std::int64_t columns = std::min(together, d - first), rows = rows_of(key_lengths, b, x.extent(1));
    assert(rows >= 1);
    double sums[together] = {};
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* row = x.at(b, i) + first;
      for (std::int64_t j = 0; j < columns; ++j) sums[j] += row[j];
    }
    for (std::int64_t j = 0; j < columns; ++j)
      y(b, first + j) = static_cast<float>(sums[j] / static_cast<double>(rows));
  });
}

void mean_rows_backward(Context& context, View<float> dx, View<const float> dy,
                        std::span<const std::int64_t> key_lengths) {
  const std::int64_t length = dx.extent(1), d = dx.extent(2);
  parallel_blocks(context, dx.extent(0) * length, rows_of_piece(d),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      const std::int64_t b = i / length, rows = rows_of(key_lengths, b, length);
                      float* to = dx.at(b, i % length);
                      const float factor = i % length < rows ? 1 / static_cast<float>(rows) : 0;
                      for (std::int64_t j = 0; j < d; ++j) to[j] = factor * dy(b, j);
                    }
                  });
}

}  // namespace linnet::kernels
