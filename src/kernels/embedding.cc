#include "kernels/embedding.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/pieces.h"
#include "kernels/position_frequencies.h"

namespace linnet::kernels {
namespace {

void add_row(float* to, const float* from, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) to[j] += from[j];
}

}  // namespace

void embedding_forward(Context& context, View<float> y, View<const float> table, const FieldIds& ids) {
  const std::int64_t d = table.extent(1);
  assert(y.extent(0) == ids.rows() && y.extent(1) == d);
  const std::size_t bytes = static_cast<std::size_t>(d) * sizeof(float);
  parallel_blocks(context, y.extent(0), rows_of_piece(d), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (const std::int32_t id = ids[i]; id >= 0)
        std::memcpy(y.at(i), table.at(id), bytes);
      else
        std::memset(y.at(i), 0, bytes);
    }
  });
}

void embedding_add(Context& context, View<float> y, View<const float> table, const FieldIds& ids) {
  const std::int64_t d = table.extent(1);
  assert(y.extent(0) == ids.rows() && y.extent(1) == d);
  parallel_blocks(context, y.extent(0), rows_of_piece(d), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      if (const std::int32_t id = ids[i]; id >= 0) add_row(y.at(i), table.at(id), d);
  });
}

void embedding_backward(Context& context, View<float> dtable, View<const float> dy, const FieldIds& ids) {
  assert(dy.extent(0) == ids.rows() && dy.extent(1) == dtable.extent(1));
  // Columns are shared out, so that each thread meets the rows in order.
  parallel_blocks(context, dtable.extent(1), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < dy.extent(0); ++i)
      if (const std::int32_t id = ids[i]; id >= 0)
        add_row(dtable.at(id, begin), dy.at(i, begin), end - begin);
  });
}

void add_rows(Context& context, View<float> y, View<const float> rows) {
  const std::int64_t length = y.extent(1), d = y.extent(2);
  assert(rows.extent(0) == length && rows.extent(1) == d);
  parallel_blocks(context, y.extent(0) * length, rows_of_piece(d), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) add_row(y.at(i / length, i % length), rows.at(i % length), d);
  });
}

void add_rows_backward(Context& context, View<float> drows, View<const float> dy) {
  const std::int64_t d = dy.extent(2);
  assert(drows.extent(0) == dy.extent(1) && drows.extent(1) == d);
  parallel_blocks(context, dy.extent(1), rows_of_piece(d * std::max<std::int64_t>(1, dy.extent(0))),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t batch = 0; batch < dy.extent(0); ++batch)
                      for (std::int64_t i = begin; i < end; ++i) add_row(drows.at(i), dy.at(batch, i), d);
                  });
}

void sinusoidal_positions(Context& context, View<float> rows, std::int64_t first) {
  const std::int64_t d = rows.extent(1);
  if (rows.size() == 0) return;
  const Twofold ratio = frequency_ratio(d);
  parallel_blocks(context, rows.extent(0), rows_of_piece(32 * d), [&](std::int64_t begin, std::int64_t end) {
    Twofold frequency = turns_per_radian;
    for (std::int64_t j = 0; j < d; j += 2, frequency = frequency * ratio) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Twofold turns = Twofold{static_cast<double>(first + i), 0} * frequency;
        const double angle = 2 * std::numbers::pi * ((turns.high - std::nearbyint(turns.high)) + turns.low);
        rows(i, j) = static_cast<float>(std::sin(angle));
        if (j + 1 < d) rows(i, j + 1) = static_cast<float>(std::cos(angle));
      }
    }
  });
}

}  // namespace linnet::kernels
