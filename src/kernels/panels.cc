#include "kernels/panels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/parallel.h"
#include "hwy/cache_control.h"
#include "kernels/narrow.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/panels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/epilogue-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/tile-inl.h"
#include "kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// `rows` rows of n numbers, `stride` apart, = what `end` and the rows below it say after the sums, whose
/// rows are 64 floats.
void finish_sums(float* to, std::int64_t stride, std::int64_t rows, std::int64_t n, const float* sums,
                 Activation activation, const Epilogue::Row& end, const Epilogue::Steps& steps) {
  with_activation(activation, [&](auto known) HWY_ATTR {
    finish_rows<decltype(known)::value, false>(to, stride, rows, n, end, steps,
                                               [&](auto lanes, std::int64_t i, std::int64_t j) HWY_ATTR {
                                                 return lanes.load(sums + i * PanelLayout::columns + j);
                                               });
  });
}

/// `count` rows of a panel from row k on, which is even, for tile `tile` of `tiles` that read them. What
/// follows them in memory is multiplied next.
FloatRows rows_of(const float* packed, const PanelLayout& layout, std::int64_t panel, std::int64_t k,
                  std::int64_t count, std::int64_t tile, std::int64_t tiles) {
  constexpr std::int64_t width = PanelLayout::columns;
  const float* at = packed + panel * layout.panel_floats() + k * width;
  return {at, width, NextPanel::of_tile(at, 4 * count * width, tile, tiles)};
}
PairRows rows_of(const bf16* packed, const PanelLayout& layout, std::int64_t panel, std::int64_t k,
                 std::int64_t count, std::int64_t tile, std::int64_t tiles) {
  constexpr std::int64_t width = PanelLayout::columns;
  const NarrowLayout pairs{WeightType::bf16, layout.inputs, layout.outputs};
  const bf16* at = packed + pairs.offset(0, panel * width) + k * width;
  return {reinterpret_cast<const std::uint32_t*>(at), width,
          NextPanel::of_tile(at, (count + 1) / 2 * 4 * width, tile, tiles)};
}

/// to [rows, 64] = columns of the dense panel from 64 rows of w, `stride` floats apart: the transpose.
void pack_rows(float* to, const float* w, std::int64_t stride, std::int64_t rows) {
  constexpr std::int64_t width = PanelLayout::columns;
  const hn::CappedTag<float, 16> d;
  // Blocks of it stay in the first cache while its lines are filled.
  constexpr std::int64_t block = 64;
  for (std::int64_t k = 0; k < rows; k += block, to += block * width)
    transpose_tile(d, to, width, w + k, static_cast<std::size_t>(stride), width,
                   static_cast<std::size_t>(std::min(block, rows - k)));
}

// Both are dense, `from` where vectors of 16 bytes are, `to` where whole ones are.
void copy_past_caches(float* to, const float* from, std::int64_t count) {
  const hn::CappedTag<float, 16> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d)))
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
}

/// 64 rows of W [64, inputs], `stride` floats apart: the panel of Wᵀ that consists of them, and their rows in
/// the panels of W, of which the first are `straight` and the others `panel_floats` apart.
void pack_rows_both(float* transposed, float* straight, std::int64_t panel_floats, const float* w,
                    std::int64_t stride, std::int64_t inputs) {
  constexpr std::int64_t width = PanelLayout::columns;
  const hn::CappedTag<float, 16> d;
  HWY_ALIGN float block[width * width];
  for (std::int64_t k = 0; k < inputs; k += width) {
    float* rows = straight + k / width * panel_floats;
    for (std::int64_t r = 0; r < width; ++r) {
      const float* from = w + r * stride + k;
      for (std::int64_t next = width; next < 2 * width; next += 16) __builtin_prefetch(from + next);
      copy_past_caches(rows + r * width, from, width);
    }
    transpose_tile(d, block, width, w + k, static_cast<std::size_t>(stride), width, width);
    copy_past_caches(transposed + k * width, block, width * width);
  }
  hwy::FlushStream();
}

/// Most rows that go through the slices of a panel together: their sums lie in the caches meanwhile.
constexpr std::int64_t most_rows = 96;

/// Columns of panels [first, last) of c = epilogue(a · B), for most_rows at most.
template <class T>
void multiply_few(View<float> c, View<const float> a, const T* packed, const PanelLayout& layout,
                  std::int64_t first, std::int64_t last, const Epilogue& epilogue) {
  constexpr std::int64_t width = PanelLayout::columns;
  const std::int64_t slice = layout.slice();
  const std::int64_t rows = a.extent(0);
  const std::int64_t tiles = (rows + tile_rows - 1) / tile_rows;
  const std::int64_t least_height = rows / tiles, higher = rows % tiles;
  const Epilogue::Steps steps = epilogue.steps();
  const bool into_rows = epilogue.activation == Activation::none && epilogue.slope.rank() == 0 &&
                         (epilogue.factor.rank() == 0 || epilogue.factor.dtype() == DType::f32);
  const bool residual = epilogue.residual.data() != nullptr;
  HWY_ALIGN float sums[most_rows * width];
  for (std::int64_t panel = first; panel < last; ++panel) {
    const std::int64_t j = panel * width;
    const std::int64_t n = std::min(width, layout.outputs - j);
    const float* const bias = epilogue.bias.data() != nullptr ? epilogue.bias.data() + j : nullptr;
    // Without inputs there is one slice, of no terms.
    for (std::int64_t k = 0; k == 0 || k < layout.inputs; k += slice) {
      const std::int64_t inner = std::min(slice, layout.inputs - k);
      const bool ends = k + inner == layout.inputs;
      // Tiles of nearly equal height: 8 rows as 4 + 4.
      for (std::int64_t tile = 0, begin = 0, height = 0; tile < tiles; ++tile, begin += height) {
        height = least_height + (tile < higher ? 1 : 0);
        float* const own = sums + (k > 0 || !ends ? begin * width : 0);
        const auto multiply = [&](const TileEnd& to) HWY_ATTR {
          tile_product<false>(static_cast<int>(height), static_cast<int>(n), to, a.at(begin, k), a.stride(0),
                              rows_of(packed, layout, panel, k, inner, tile, tiles), inner);
        };
        if (ends && into_rows && n == width) {
          multiply({.to = c.at(begin, j),
                    .stride = c.stride(0),
                    .earlier = k > 0 ? own : nullptr,
                    .bias = bias,
                    .factor = epilogue.factor.at<float>(begin, j),
                    .factor_stride = steps.factor,
                    .residual = residual ? epilogue.residual.at(begin, j) : nullptr,
                    .residual_stride = steps.residual});
          continue;
        }
        multiply(TileEnd::sums(own, k > 0));
        if (ends)
          finish_sums(c.at(begin, j), c.stride(0), height, n, own, epilogue.activation,
                      epilogue.row(begin, j), steps);
      }
    }
  }
}

template <class T>
void multiply_columns(View<float> c, View<const float> a, const T* packed, const PanelLayout& layout,
                      std::int64_t first, std::int64_t last, const Epilogue& epilogue) {
  const std::int64_t rows = a.extent(0), blocks = (rows + most_rows - 1) / most_rows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = rows * block / blocks, end = rows * (block + 1) / blocks;
    multiply_few(c.slice(0, begin, end), a.slice(0, begin, end), packed, layout, first, last,
                 epilogue.of_rows(begin, end));
  }
}

void multiply_floats(View<float> c, View<const float> a, const float* packed, const PanelLayout& layout,
                     std::int64_t first, std::int64_t last, const Epilogue& epilogue) {
  multiply_columns(c, a, packed, layout, first, last, epilogue);
}
void multiply_pairs(View<float> c, View<const float> a, const bf16* packed, const PanelLayout& layout,
                    std::int64_t first, std::int64_t last, const Epilogue& epilogue) {
  multiply_columns(c, a, packed, layout, first, last, epilogue);
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(pack_rows);
HWY_EXPORT(pack_rows_both);
HWY_EXPORT(multiply_floats);
HWY_EXPORT(multiply_pairs);

void pack_panel(float* to, std::int64_t rows, std::int64_t padded_rows, std::int64_t n, const float* b,
                std::int64_t k_stride, std::int64_t n_stride) {
  constexpr std::int64_t width = PanelLayout::columns;
  if (n < width) std::memset(to, 0, static_cast<std::size_t>(rows * width) * sizeof(float));
  std::memset(to + rows * width, 0, static_cast<std::size_t>((padded_rows - rows) * width) * sizeof(float));
  if (n_stride == 1) {
    for (std::int64_t k = 0; k < rows; ++k)
      std::memcpy(to + k * width, b + k * k_stride, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  if (n == width && k_stride == 1 && rows % 4 == 0)
    return HWY_DYNAMIC_DISPATCH(pack_rows)(to, b, n_stride, rows);
  // A cache line of the source at a time, whose 16 floats go to 16 lines that stay in the first cache.
  for (std::int64_t block = 0; block < rows; block += 16) {
    const std::int64_t end = std::min(block + 16, rows);
    for (std::int64_t j = 0; j < n; ++j) {
      const float* from = b + j * n_stride;
      for (std::int64_t k = block; k < end; ++k) to[k * width + j] = from[k * k_stride];
    }
  }
}

}  // namespace

void pack_panels(Context& context, float* packed, const PanelLayout& layout, const float* b,
                 std::int64_t k_stride, std::int64_t n_stride) {
  if (layout.floats() == 0) return;
  parallel_for(context, layout.panels(), [&](std::int64_t panel) {
    const std::int64_t j = panel * PanelLayout::columns;
    pack_panel(packed + panel * layout.panel_floats(), layout.inputs, layout.padded_inputs(),
               std::min(PanelLayout::columns, layout.outputs - j), b + j * n_stride, k_stride, n_stride);
  });
}

bool packs_both(View<const float> w) {
  // Two megabytes: a few such matrices are more than the second cache holds.
  constexpr std::int64_t least = std::int64_t{1} << 19;
  constexpr std::int64_t width = PanelLayout::columns;
  return w.extent(0) * w.extent(1) >= least && w.extent(0) % width == 0 && w.extent(1) % width == 0;
}

void pack_both_panels(Context& context, float* transposed, float* straight, View<const float> w) {
  constexpr std::int64_t width = PanelLayout::columns;
  const std::int64_t outputs = w.extent(0), inputs = w.extent(1);
  parallel_for(context, outputs / width, [&](std::int64_t panel) {
    HWY_DYNAMIC_DISPATCH(pack_rows_both)
    (transposed + panel * width * inputs, straight + panel * width * width, width * outputs,
     w.at(panel * width), w.stride(0), inputs);
  });
}

void unpack_panels(float* b, std::int64_t k_stride, std::int64_t n_stride, const float* packed,
                   const PanelLayout& layout) {
  constexpr std::int64_t width = PanelLayout::columns;
  for (std::int64_t n = 0; n < layout.outputs; ++n) {
    const float* column = packed + n / width * layout.panel_floats() + n % width;
    for (std::int64_t k = 0; k < layout.inputs; ++k) b[k * k_stride + n * n_stride] = column[k * width];
  }
}

void multiply_panels(View<float> c, View<const float> a, const float* packed, const PanelLayout& layout,
                     std::int64_t first, std::int64_t last, const Epilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(multiply_floats)(c, a, packed, layout, first, last, epilogue);
}

void multiply_panels(View<float> c, View<const float> a, const bf16* packed, const PanelLayout& layout,
                     std::int64_t first, std::int64_t last, const Epilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(multiply_pairs)(c, a, packed, layout, first, last, epilogue);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
