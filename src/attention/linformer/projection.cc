#include "attention/linformer/projection.h"

#include <algorithm>

#include "base/workspace.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/linformer/projection.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/tiles/gemm-inl.h"
// clang-format on

// The factors of a product are copied into dense, padded tiles of 128 terms: 64 KB and less, whatever the
// strides of the caller, and no tile is read fewer than 64 times.

HWY_BEFORE_NAMESPACE();
namespace linnet::linformer::HWY_NAMESPACE {

using linnet::HWY_NAMESPACE::for_each_panel;
using linnet::HWY_NAMESPACE::Into;
using linnet::HWY_NAMESPACE::Left;
using linnet::HWY_NAMESPACE::Multiply;

constexpr std::size_t kDepth = 128;  // terms of a sum that are held in registers

HWY_INLINE std::size_t round_up(std::size_t count, std::size_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// Columns [first, first + columns) of x as rows `ld` apart, with zeros up to `rows` rows and `ld` columns.
HWY_INLINE void pack(float* HWY_RESTRICT to, std::size_t ld, std::size_t rows, View<const float> x,
                     std::int64_t first, std::int64_t columns) {
  const std::size_t filled = static_cast<std::size_t>(x.extent(0));
  for (std::size_t r = 0; r < filled; ++r) {
    float* row = to + r * ld;
    std::copy_n(x.at(r, first), columns, row);
    std::fill(row + columns, row + ld, 0.0f);
  }
  std::fill(to + filled * ld, to + std::max(rows, filled) * ld, 0.0f);
}

void compress_of(Context& own, View<float> compressed, View<const float> projection, View<const float> x) {
  const std::int64_t dim = x.extent(1), tokens = x.extent(0);
  const std::size_t width = round_up(dim, linnet::HWY_NAMESPACE::kPad);
  const std::size_t rows = round_up(projection.extent(0), linnet::HWY_NAMESPACE::kRowBlock);
  Workspace workspace(own);
  float* left = workspace.take(kRanks * kDepth);
  float* right = workspace.take(kDepth * width);
  float* sums = workspace.take_zeroed(rows * width);
  for (std::int64_t first = 0; first < tokens; first += kDepth) {
    const std::int64_t depth = std::min<std::int64_t>(kDepth, tokens - first);
    pack(left, kDepth, rows, projection, first, depth);
    pack(right, width, depth, x.slice(0, first, first + depth), 0, dim);
    for_each_panel(Multiply<Left::plain, Into::add>{sums, width, left, kDepth, right, width, rows,
                                                    static_cast<std::size_t>(depth)},
                   width);
  }
  for (std::int64_t r = 0; r < compressed.extent(0); ++r)
    std::copy_n(sums + r * width, dim, compressed.at(r));
}

void expand_of(Context& own, View<float> x, View<const float> projection, std::int64_t first,
               View<const float> compressed) {
  const std::int64_t dim = x.extent(1), tokens = x.extent(0), ranks = compressed.extent(0);
  const std::size_t width = round_up(dim, linnet::HWY_NAMESPACE::kPad);
  const std::size_t rows = round_up(tokens, linnet::HWY_NAMESPACE::kRowBlock);
  Workspace workspace(own);
  float* left = workspace.take(kDepth * kTokens);
  float* right = workspace.take(kDepth * width);
  float* sums = workspace.take_zeroed(rows * width);
  for (std::int64_t rank = 0; rank < ranks; rank += kDepth) {
    const std::int64_t depth = std::min<std::int64_t>(kDepth, ranks - rank);
    pack(left, kTokens, depth, projection.slice(0, rank, rank + depth), first, tokens);
    pack(right, width, depth, compressed.slice(0, rank, rank + depth), 0, dim);
    for_each_panel(Multiply<Left::transposed, Into::add>{sums, width, left, kTokens, right, width, rows,
                                                         static_cast<std::size_t>(depth)},
                   width);
  }
  for (std::int64_t t = 0; t < tokens; ++t) std::copy_n(sums + t * width, dim, x.at(t));
}

void add_projection_gradient_of(Context& own, float* sums, View<const float> compressed,
                                View<const float> x) {
  const std::int64_t dim = x.extent(1), tokens = x.extent(0);
  const std::size_t width = round_up(dim, linnet::HWY_NAMESPACE::kPad);
  const std::size_t rows = round_up(compressed.extent(0), linnet::HWY_NAMESPACE::kRowBlock);
  const std::size_t columns = round_up(tokens, linnet::HWY_NAMESPACE::kPad);
  Workspace workspace(own);
  float* left = workspace.take(kRanks * width);
  float* plain = workspace.take(kTokens * width);
  float* right = workspace.take(kTokens * width);
  pack(left, width, rows, compressed, 0, dim);
  pack(plain, width, columns, x, 0, dim);
  linnet::HWY_NAMESPACE::transpose(right, kTokens, plain, width, columns, width);
  for_each_panel(Multiply<Left::plain, Into::add>{sums, kTokens, left, width, right, kTokens, rows,
                                                  static_cast<std::size_t>(dim)},
                 columns);
}

}  // namespace linnet::linformer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::linformer {

HWY_EXPORT(compress_of);
HWY_EXPORT(expand_of);
HWY_EXPORT(add_projection_gradient_of);

void compress(Context& own, View<float> compressed, View<const float> projection, View<const float> x) {
  HWY_DYNAMIC_DISPATCH(compress_of)(own, compressed, projection, x);
}

void expand(Context& own, View<float> x, View<const float> projection, std::int64_t first,
            View<const float> compressed) {
  HWY_DYNAMIC_DISPATCH(expand_of)(own, x, projection, first, compressed);
}

void add_projection_gradient(Context& own, float* sums, View<const float> compressed, View<const float> x) {
  HWY_DYNAMIC_DISPATCH(add_projection_gradient_of)(own, sums, compressed, x);
}

}  // namespace linnet::linformer
#endif
