// dw += dyᵀ x. In f32 the tiles read dy by rows as it is. In bf16 both factors are copied to be rounded, and
// the copies laid out as those products want them.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/parallel.h"
#include "base/workspace.h"
#include "kernels/dense.h"
#include "kernels/elementwise.h"
#include "kernels/narrow.h"
#include "kernels/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weight_gradient.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/ahead-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows summed in registers before they are added to dw.
constexpr std::int64_t slice = 128;
constexpr std::int64_t panel = 64;

// Copies columns [begin, end) of x as panels of `width` columns, each [rows, width] and dense; missing
// columns are zero.
void gather(float* to, View<const float> x, std::int64_t begin, std::int64_t end, std::int64_t width) {
  const std::int64_t rows = x.extent(0);
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = to + i * width;
    for (std::int64_t j = begin; j < end; j += width, row += rows * width) {
      const std::int64_t n = std::min(width, end - j);
      const float* from = x.at(i, j);
      for_vectors(n, [&](auto lanes, std::int64_t k) { lanes.store(lanes.load(from + k), row + k); });
      if (n < width) std::memset(row + n, 0, static_cast<std::size_t>(width - n) * sizeof(float));
    }
  }
}

// Factors with longer rows are copied: what a tile reads of them would lie pages apart, and in few sets of
// the caches.
constexpr std::int64_t most_row = 256;

// What a tile asks for beside the rows of x that it reads.
struct NextSlice {
  Ahead* ahead = nullptr;
  std::size_t step = 0;

  static NextSlice nothing(const void*) { return {}; }
  HWY_INLINE void fetch() {
    if (++step % Ahead::kSteps == 0 && ahead != nullptr) ahead->fetch();
  }
};

// Columns [begin, end) of rows [row, row_end) of x, as far as there are such rows.
void add_rows(Ahead& ahead, View<const float> x, std::int64_t row, std::int64_t row_end, std::int64_t begin,
              std::int64_t end) {
  row_end = std::min(row_end, x.extent(0));
  if (row < row_end)
    ahead.add(x.at(row, begin), x.stride(0) * static_cast<std::ptrdiff_t>(sizeof(float)),
              static_cast<std::size_t>(row_end - row), static_cast<std::size_t>(end - begin) * sizeof(float));
}

// Asks for the tile of dw that a product will be added to: it lies in the second cache at best.
void fetch_tile(View<float> dw, std::int64_t i, int rows, std::int64_t j, std::int64_t columns) {
  for (int r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < columns; k += 16) __builtin_prefetch(dw.at(i + r, j + k), 1, 3);
}

// dw's rows [out, out_end) and columns [in, in_end). A slice of a factor with long rows is copied once, so
// that the tiles read memory in order. `memory` has room for both.
void gradient_block(View<float> dw, View<const float> dy, View<const float> x, std::int64_t out,
                    std::int64_t out_end, std::int64_t in, std::int64_t in_end, float* memory) {
  const std::int64_t rows = dy.extent(0), height = out_end - out;
  const bool copies_dy = dy.stride(0) > most_row, copies_x = x.stride(0) > most_row;
  float* const dy_columns = memory;
  float* const x_panels = memory + (copies_dy ? slice * height : 0);
  HWY_ALIGN float sums[tile_rows * panel];
  Ahead ahead;
  const std::int64_t slices = (rows + slice - 1) / slice;
  for (std::int64_t s = 0; s < slices; ++s) {
    const std::int64_t begin = rows * s / slices, end = rows * (s + 1) / slices;
    const std::int64_t inner = end - begin;
    if (copies_dy) gather(dy_columns, dy.slice(0, begin, end), out, out_end, height);
    if (copies_x) gather(x_panels, x.slice(0, begin, end), in, in_end, panel);
    const View<const float> left = copies_dy ? View<const float>(dy_columns, {inner, height})
                                             : dy.slice(0, begin, end).slice(1, out, out_end);
    // While this slice is multiplied the next one comes from memory.
    const std::int64_t tiles = (height + tile_rows - 1) / tile_rows * ((in_end - in + panel - 1) / panel);
    ahead.start(std::max<std::size_t>(1, static_cast<std::size_t>(tiles * inner) / Ahead::kSteps));
    add_rows(ahead, dy, end, end + slice, out, out_end);
    add_rows(ahead, x, end, end + slice, in, in_end);
    for (std::int64_t j = in; j < in_end; j += panel) {
      const std::int64_t n = std::min(panel, in_end - j);
      // Where the last columns of x are no whole panel, a tile would read beyond them.
      const bool direct = !copies_x && n == panel;
      float* const copy = x_panels + (j - in) * inner;
      if (!copies_x && !direct) gather(copy, x.slice(0, begin, end), j, in_end, panel);
      const PanelRows<float, NextSlice> b{
          direct ? x.at(begin, j) : copy, direct ? x.stride(0) : panel, {&ahead}};
      for (std::int64_t i = out; i < out_end; i += tile_rows) {
        const auto tile = static_cast<int>(std::min<std::int64_t>(tile_rows, out_end - i));
        fetch_tile(dw, i, tile, j, n);
        const float* const columns = left.at(0, i - out);
        if (n == panel) {
          float* const to = dw.at(i, j);
          tile_product<true>(
              tile, panel,
              {.to = to, .stride = dw.stride(0), .residual = to, .residual_stride = dw.stride(0)}, columns,
              left.stride(0), b, inner);
          continue;
        }
        tile_product<true>(tile, static_cast<int>(n), TileEnd::sums(sums, false), columns, left.stride(0), b,
                           inner);
        for (int r = 0; r < tile; ++r) {
          float* row = dw.at(i + r, j);
          for_vectors(n, [&](auto lanes, std::int64_t k) {
            lanes.store(hn::Add(lanes.load(row + k), lanes.load(sums + r * panel + k)), row + k);
          });
        }
      }
    }
  }
}

// db[begin, end) += column sums of dy: 64 rows in f32, then the blocks' sums one after another.
void column_sums(View<float> db, View<const float> dy, std::int64_t begin, std::int64_t end) {
  HWY_ALIGN float block[panel];
  HWY_ALIGN float total[panel] = {};
  const std::int64_t n = end - begin;
  constexpr std::int64_t rows_ahead = 16;
  assert(n <= panel);
  for (std::int64_t row = 0; row < dy.extent(0); row += 64) {
    const std::int64_t last = std::min(row + 64, dy.extent(0));
    std::memset(block, 0, sizeof block);
    for (std::int64_t i = row; i < last; ++i) {
      const float* from = dy.at(i, begin);
      fetch(dy, i + rows_ahead, i + rows_ahead + 1, begin, end);
      for_vectors(n, [&](auto lanes, std::int64_t j) {
        lanes.store(hn::Add(lanes.load(block + j), lanes.load(from + j)), block + j);
      });
    }
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      lanes.store(hn::Add(lanes.load(total + j), lanes.load(block + j)), total + j);
    });
  }
  float* to = db.at(begin);
  for_vectors(n, [&](auto lanes, std::int64_t j) {
    lanes.store(hn::Add(lanes.load(to + j), lanes.load(total + j)), to + j);
  });
}

/// Floats of memory that `gradient_block` takes for so many outputs and inputs.
std::int64_t gradient_memory(std::int64_t outputs, std::int64_t inputs) {
  return slice * (outputs + (inputs + panel - 1) / panel * panel);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(gradient_block);
HWY_EXPORT(column_sums);
HWY_EXPORT(gradient_memory);

// A block of dw whose copies stay in the second cache.
constexpr std::int64_t most_outputs = 256;
constexpr std::int64_t most_inputs = 512;

// Blocks along the outputs. An element of dw is summed in the same order whatever block it lies in, so their
// number may follow the threads: two for each of them, or one where blocks would get too small, and the same
// number for all.
std::int64_t output_blocks(std::int64_t tiles, std::int64_t in_blocks, std::int64_t threads) {
  const std::int64_t least = (tiles * 6 + most_outputs - 1) / most_outputs, most = (tiles + 3) / 4;
  if (threads == 1) return least;
  const auto even = [&](std::int64_t blocks) { return blocks * in_blocks % threads == 0; };
  std::int64_t blocks = std::max(least, (2 * threads + in_blocks - 1) / in_blocks);
  while (!even(blocks)) ++blocks;
  if (blocks <= most) return blocks;
  for (std::int64_t fewer = most; fewer > least; --fewer)
    if (even(fewer)) return fewer;
  return std::max(least, most);
}

// Rows of dy and x that are rounded together.
constexpr std::int64_t bf16_slice = 1024;

// Outputs of a task. They lie in one panel.
std::int64_t bf16_block(std::int64_t outputs) { return outputs >= 256 ? 64 : 32; }

// to [n] += the sums of the rows' columns, n at most `most_columns`.
void add_sums(View<float> to, View<const float> rows) {
  constexpr std::int64_t most_columns = 64;
  float sums[most_columns] = {};
  const std::int64_t n = to.extent(0);
  assert(n <= most_columns);
  for (std::int64_t i = 0; i < rows.extent(0); ++i)
    for (std::int64_t j = 0; j < n; ++j) sums[j] += *rows.at(i, j);
  for (std::int64_t j = 0; j < n; ++j) *to.at(j) += sums[j];
}

// dw += dyᵀ x in bf16 and db += column sums of dy, slice by slice: both factors are rounded and laid out as
// the products take them, both in panels for our own, so that nothing is transposed. An odd last row has a
// row of zeros beside it.
void add_bf16_products(Context& context, View<float> dw, View<float> db, ConstFloatView dy,
                       ConstFloatView x) {
  const std::int64_t rows = dy.extent(0), outputs = dy.extent(1), inputs = x.extent(1);
  const std::int64_t slices = (rows + bf16_slice - 1) / bf16_slice;
  const std::int64_t block = bf16_block(outputs);
  const bool matrix_units = multiplies_by_units(WeightType::bf16);
  Workspace workspace(context);
  const std::int64_t bands = ((rows + slices - 1) / slices + 1 + pair_band) / pair_band;
  const auto panels_of = [&](std::int64_t columns) {
    const NarrowLayout largest{WeightType::bf16, bands * pair_band, columns};
    return workspace.array<bf16>(largest.bytes() / largest.element()).data();
  };
  bf16 *left = panels_of(outputs), *right = panels_of(inputs);
  const View<float> sums = workspace.take(bands, outputs);
  for (std::int64_t s = 0; s < slices; ++s) {
    const auto bound = [&](std::int64_t i) { return i == slices ? rows : rows * i / slices / 2 * 2; };
    const ConstFloatView dy_slice = dy.slice(0, bound(s), bound(s + 1)),
                         x_slice = x.slice(0, bound(s), bound(s + 1));
    const std::int64_t inner = (dy_slice.extent(0) + 1) / 2 * 2;
    const NarrowLayout layout{WeightType::bf16, inner, inputs};
    const std::int64_t bands_here = layout.padded_inputs() / pair_band;
    parallel_for(context, bands_here, [&](Context& own, std::int64_t band) {
      const std::int64_t begin = band * pair_band;
      float* const sums_here = db.empty() ? nullptr : sums.at(band);
      pack_pairs(right, layout.padded_inputs(), x_slice, begin);
      if (!matrix_units) return pack_pairs(left, layout.padded_inputs(), dy_slice, begin, sums_here);
      Workspace part(own);
      transpose_pairs(left, inner, dy_slice, begin, std::min(begin + pair_band, inner),
                      part.array<bf16>(pair_band * NarrowLayout{WeightType::bf16, 0, outputs}.panels() *
                                       NarrowLayout::columns)
                          .data(),
                      sums_here);
    });
    parallel_blocks(context, outputs, block, [&](std::int64_t first, std::int64_t last) {
      if (!db.empty()) add_sums(db.slice(0, first, last), sums.slice(0, 0, bands_here).slice(1, first, last));
      bf16* const rows =
          left +
          (matrix_units ? first * inner : NarrowLayout{WeightType::bf16, inner, outputs}.offset(0, first));
      multiply_groups(dw.slice(0, first, last), true,
                      {.layout = layout,
                       .rows = {WeightType::bf16, rows, nullptr},
                       .count = last - first,
                       .panels = reinterpret_cast<const std::byte*>(right),
                       .outputs = inputs,
                       .columns = !matrix_units,
                       .units = matrix_units});
    });
  }
}

std::int64_t gradient_memory(std::int64_t outputs, std::int64_t inputs) {
  return HWY_DYNAMIC_DISPATCH(gradient_memory)(outputs, inputs);
}

// A gradient of few numbers is summed in f32 over parts of the rows, each by one thread with sums of its own,
// which are added in order. Blocks of it would be small, and every thread would read all rows.
constexpr std::int64_t most_numbers_for_parts = 1 << 15;
constexpr std::int64_t least_part_rows = 1024;
constexpr std::int64_t most_parts = 16;

std::int64_t parts_of(std::int64_t rows, std::int64_t numbers) {
  if (numbers > most_numbers_for_parts) return 1;
  return std::clamp<std::int64_t>(rows / least_part_rows, 1, most_parts);
}

/// db += column sums of dy, 64 columns each time.
void add_column_sums(View<float> db, View<const float> dy, std::int64_t block) {
  HWY_DYNAMIC_DISPATCH(column_sums)(db, dy, 64 * block, std::min(64 * (block + 1), dy.extent(1)));
}

void add_by_parts(Context& context, View<float> dw, View<float> db, View<const float> dy, View<const float> x,
                  std::int64_t parts) {
  const std::int64_t rows = dy.extent(0), outputs = dw.extent(0), inputs = dw.extent(1);
  const auto gradient = HWY_DYNAMIC_DISPATCH(gradient_block);
  Workspace workspace(context);
  const View<float> dws(workspace.take_zeroed(parts * outputs * inputs), {parts, outputs, inputs});
  const View<float> dbs(workspace.take_zeroed(parts * outputs), {parts, outputs});
  const auto of_part = [](View<float> all, std::int64_t part) { return all.slice(0, part, part + 1); };
  parallel_for(context, parts, [&](Context& own, std::int64_t part) {
    const std::int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
    const View<const float> dy_part = dy.slice(0, begin, end);
    Workspace memory(own);
    gradient(of_part(dws, part).reshape({outputs, inputs}), dy_part, x.slice(0, begin, end), 0, outputs, 0,
             inputs, memory.array<float>(gradient_memory(outputs, inputs)).data());
    for (std::int64_t block = 0; !db.empty() && 64 * block < outputs; ++block)
      add_column_sums(of_part(dbs, part).reshape({outputs}), dy_part, block);
  });
  parallel_blocks(context, outputs, 16, [&](Context& own, std::int64_t begin, std::int64_t end) {
    const View<float> to = dw.slice(0, begin, end);
    for (std::int64_t part = 0; part < parts; ++part) {
      add(own, to, to, of_part(dws, part).reshape({outputs, inputs}).slice(0, begin, end));
      for (std::int64_t o = begin; !db.empty() && o < end; ++o) *db.at(o) += dbs(part, o);
    }
  });
}

// The blocks of dw are independent of each other.
void add_by_blocks(Context& context, View<float> dw, View<float> db, View<const float> dy,
                   View<const float> x) {
  const std::int64_t outputs = dw.extent(0), inputs = dw.extent(1);
  // Whole tiles of 6 outputs and panels of 64 inputs, shared out evenly.
  const std::int64_t tiles = (outputs + 5) / 6, panels = (inputs + 63) / 64;
  const std::int64_t in_blocks = (inputs + most_inputs - 1) / most_inputs;
  const std::int64_t out_blocks =
      output_blocks(tiles, std::max<std::int64_t>(1, in_blocks), context.threads());
  const std::int64_t products = out_blocks * in_blocks;
  const std::int64_t sums = db.empty() ? 0 : (outputs + 63) / 64;
  parallel_for(context, products + sums, [&](Context& own, std::int64_t i) {
    if (i >= products) return add_column_sums(db, dy, i - products);
    const std::int64_t o = i / in_blocks, p = i % in_blocks;
    const std::int64_t out = tiles * o / out_blocks * 6,
                       out_end = std::min(tiles * (o + 1) / out_blocks * 6, outputs);
    const std::int64_t in = panels * p / in_blocks * 64,
                       in_end = std::min(panels * (p + 1) / in_blocks * 64, inputs);
    Workspace workspace(own);
    HWY_DYNAMIC_DISPATCH(gradient_block)
    (dw, dy, x, out, out_end, in, in_end,
     workspace.array<float>(gradient_memory(out_end - out, in_end - in)).data());
  });
}

}  // namespace

// Without matrix units the products of a small gradient save less than rounding and transposing costs.
bool rounds_factors(std::int64_t rows, std::int64_t outputs, std::int64_t inputs) {
  return rows >= 64 && multiplies_groups(WeightType::bf16) &&
         (outputs * inputs > most_numbers_for_parts || multiplies_by_units(WeightType::bf16));
}

bool reads_rounded(WeightType type, std::int64_t outputs, std::int64_t inputs) {
  return type == WeightType::bf16 && rounds_factors(bf16_slice, outputs, inputs);
}

void accumulate_weight_gradient(Context& context, View<float> dw, View<float> db, ConstFloatView dy,
                                ConstFloatView x, WeightType type) {
  const std::int64_t rows = dy.extent(0), outputs = dy.extent(1), inputs = x.extent(1);
  assert(x.extent(0) == rows && dw.extent(0) == outputs && dw.extent(1) == inputs);
  assert(type != WeightType::int8);
  if (rows == 0) return;
  const bool rounded = dy.dtype() == DType::bf16 || x.dtype() == DType::bf16;
  assert(!rounded || (type == WeightType::bf16 && dw.stride(0) == inputs));
  if (rounded ||
      (type == WeightType::bf16 && dw.stride(0) == inputs && rounds_factors(rows, outputs, inputs)))
    return add_bf16_products(context, dw, db, dy, x);
  const View<const float> wide_dy = dy.as<const float>(), wide_x = x.as<const float>();
  const std::int64_t parts = parts_of(rows, outputs * inputs);
  if (parts > 1) return add_by_parts(context, dw, db, wide_dy, wide_x, parts);
  add_by_blocks(context, dw, db, wide_dy, wide_x);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
