#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/tiles/rows.h"
#include "base/cache_line.h"
#include "base/workspace.h"
#include "linnet/tensor.h"

namespace linnet {

// Rows of a tensor [B, N, H, D] that lie anywhere in memory: row place(s) of head h for s = 0, 1, …. The row
// a few places ahead is asked for, because no hardware foresees it.

/// Asks for row place(s + 8) of `count` ones.
template <class T, class Place>
void fetch_ahead(std::int64_t s, std::int64_t count, const Place& place, View<T> x, std::int64_t b,
                 std::int64_t h) {
  constexpr std::int64_t places = 8;
  if (s + places >= count) return;
  prefetch(reinterpret_cast<std::uintptr_t>(x.at(b, place(s + places), h)),
           static_cast<std::size_t>(x.extent(3)) * sizeof(T));
}

/// Calls body(row, s) for `count` of them.
template <class T, class Place, class Body>
void for_scattered(View<T> x, std::int64_t count, const Place& place, std::int64_t b, std::int64_t h,
                   const Body& body) {
  for (std::int64_t s = 0; s < count; ++s) {
    fetch_ahead(s, count, place, x, b, h);
    body(x.at(b, place(s), h), s);
  }
}

/// rows [count, D] = the rows, dense.
template <class Place>
void gather(float* rows, std::int64_t count, const Place& place, View<const float> x, std::int64_t b,
            std::int64_t h) {
  const std::int64_t dim = x.extent(3);
  for_scattered(x, count, place, b, h,
                [&](const float* row, std::int64_t s) { std::copy_n(row, dim, rows + s * dim); });
}

/// The same in working memory.
template <class Place>
float* gather(Workspace& workspace, std::int64_t count, const Place& place, View<const float> x,
              std::int64_t b, std::int64_t h) {
  float* rows = workspace.take(static_cast<std::size_t>(count * x.extent(3)));
  gather(rows, count, place, x, b, h);
  return rows;
}

/// Assigns dense rows to them.
template <class Place>
void scatter(View<float> x, std::int64_t count, const Place& place, std::int64_t b, std::int64_t h,
             const float* rows) {
  const std::int64_t dim = x.extent(3);
  for_scattered(x, count, place, b, h,
                [&](float* row, std::int64_t s) { std::copy_n(rows + s * dim, dim, row); });
}

/// Adds dense rows to them.
template <class Place>
void add_scattered(View<float> x, std::int64_t count, const Place& place, std::int64_t b, std::int64_t h,
                   const float* rows) {
  const std::int64_t dim = x.extent(3);
  for_scattered(x, count, place, b, h,
                [&](float* row, std::int64_t s) { add_row(row, rows + s * dim, dim); });
}

}  // namespace linnet
