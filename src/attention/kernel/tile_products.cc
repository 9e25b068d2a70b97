#include "attention/kernel/tile_products.h"

#include <cstddef>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernel/tile_products.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/tiles/gemm-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/simd_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

/// Sizes of a product, rows rounded up to whole blocks and columns to whole vectors.
struct ProductSizes {
  std::size_t ldc, lda, ldb, rows, columns, depth;
};

ProductSizes sizes_of(std::int64_t ldc, std::int64_t lda, std::int64_t ldb, std::int64_t rows,
                      std::int64_t columns, std::int64_t depth) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  const std::int64_t block = static_cast<std::int64_t>(kRowBlock);
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  return {size(ldc),
          size(lda),
          size(ldb),
          size((rows + block - 1) / block * block),
          size((columns + lanes - 1) / lanes * lanes),
          size(depth)};
}

template <Left kLeft, Into kInto>
HWY_INLINE void product(float* c, const float* a, const float* b, const ProductSizes& sizes) {
  for_each_panel(
      Multiply<kLeft, kInto>{c, sizes.ldc, a, sizes.lda, b, sizes.ldb, sizes.rows, sizes.depth, nullptr},
      sizes.columns);
}

void multiply_tiles(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b,
                    std::int64_t ldb, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  product<Left::plain, Into::assign>(c, a, b, sizes_of(ldc, lda, ldb, rows, columns, depth));
}

void multiply_add_tiles(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b,
                        std::int64_t ldb, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  product<Left::plain, Into::add>(c, a, b, sizes_of(ldc, lda, ldb, rows, columns, depth));
}

void multiply_transposed_tiles(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b,
                               std::int64_t ldb, std::int64_t rows, std::int64_t columns,
                               std::int64_t depth) {
  product<Left::transposed, Into::assign>(c, a, b, sizes_of(ldc, lda, ldb, rows, columns, depth));
}

void transpose_tile(float* to, std::int64_t ldt, const float* from, std::int64_t ldf, std::int64_t rows,
                    std::int64_t columns) {
  transpose(to, static_cast<std::size_t>(ldt), from, static_cast<std::size_t>(ldf),
            static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

bool add_row_sums(double* sums, const float* s, std::int64_t lds, std::int64_t rows, std::int64_t columns) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Vec32 zero = hn::Zero(d), infinity = hn::Inf(d);
  auto good = hn::Eq(zero, zero);
  for (std::int64_t i = 0; i < rows; ++i, s += lds) {
    Vec32 sum = hn::Zero(d);
    for (std::int64_t j = 0; j < columns; j += lanes) {
      const Vec32 x = hn::Load(d, s + j);
      good = hn::And(good, hn::And(hn::Ge(x, zero), hn::Lt(x, infinity)));
      sum = hn::Add(sum, x);
    }
    sums[i] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return hn::AllTrue(d, good);
}

/// to[i] = f(x[i], y[i]), whole vectors at a time.
template <class F>
HWY_INLINE void for_row(float* to, const float* x, const float* y, std::int64_t count, const F& f) {
  kernels::HWY_NAMESPACE::for_vectors(count, [&](const auto& lanes, std::int64_t i) HWY_ATTR {
    lanes.store(f(lanes.load(x + i), lanes.load(y + i)), to + i);
  });
}

/// x^exponent by squaring.
HWY_INLINE Vec32 power_of(Vec32 x, int exponent) {
  const F32 d;
  Vec32 power = hn::Set(d, 1.0f);
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = hn::Mul(power, x);
    x = hn::Mul(x, x);
  }
  return power;
}

void polynomial_row(float* s, const float* x, std::int64_t count, float scale, float offset, int power) {
  const F32 d;
  for_row(s, x, x, count, [&](Vec32 dot, Vec32) HWY_ATTR {
    return power_of(hn::MulAdd(hn::Set(d, scale), dot, hn::Set(d, offset)), power);
  });
}

void polynomial_slope_row(float* w, const float* x, const float* ds, std::int64_t count, float scale,
                          float offset, int power) {
  const F32 d;
  const Vec32 factor = hn::Set(d, scale * static_cast<float>(power));
  for_row(w, x, ds, count, [&](Vec32 dot, Vec32 grad) HWY_ATTR {
    const Vec32 base = hn::MulAdd(hn::Set(d, scale), dot, hn::Set(d, offset));
    // The power of a hidden pair, whose gradient is 0, may overflow.
    const Vec32 slope = hn::Mul(hn::Mul(factor, grad), power_of(base, power - 1));
    return hn::IfThenZeroElse(hn::Eq(grad, hn::Zero(d)), slope);
  });
}

constexpr float kLimit = 80.0f;

void limited_exp_row(float* s, const float* x, std::int64_t count, float scale) {
  const F32 d;
  for_row(s, x, x, count, [&](Vec32 dot, Vec32) HWY_ATTR {
    // By a comparison, which keeps NaN: what a minimum makes of it depends on the instruction set.
    const Vec32 argument = hn::Mul(hn::Set(d, scale), dot), limit = hn::Set(d, kLimit);
    return kernels::HWY_NAMESPACE::fast_exp(d, hn::IfThenElse(hn::Gt(argument, limit), limit, argument));
  });
}

void limited_exp_slope_row(float* w, const float* s, const float* ds, std::int64_t count, float scale) {
  const F32 d;
  const Vec32 largest = kernels::HWY_NAMESPACE::fast_exp(d, hn::Set(d, kLimit));
  for_row(w, s, ds, count, [&](Vec32 similarity, Vec32 grad) HWY_ATTR {
    const Vec32 slope = hn::Mul(hn::Set(d, scale), hn::Mul(similarity, grad));
    return hn::IfThenZeroElse(hn::Ge(similarity, largest), slope);
  });
}

void gaussian_row(float* s, const float* x, const float* others, std::int64_t count, float own,
                  float factor) {
  const F32 d;
  for_row(s, x, others, count, [&](Vec32 dot, Vec32 other) HWY_ATTR {
    const Vec32 distance = hn::NegMulAdd(hn::Set(d, 2.0f), dot, hn::Add(hn::Set(d, own), other));
    // As above.
    const Vec32 positive = hn::IfThenZeroElse(hn::Lt(distance, hn::Zero(d)), distance);
    return kernels::HWY_NAMESPACE::fast_exp(d, hn::Mul(hn::Set(d, -factor), positive));
  });
}

void product_row(float* w, const float* s, const float* ds, std::int64_t count, float factor) {
  const F32 d;
  for_row(w, s, ds, count, [&](Vec32 similarity, Vec32 grad) HWY_ATTR {
    return hn::Mul(hn::Set(d, factor), hn::Mul(similarity, grad));
  });
}

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {

HWY_EXPORT(multiply_tiles);
HWY_EXPORT(multiply_add_tiles);
HWY_EXPORT(multiply_transposed_tiles);
HWY_EXPORT(transpose_tile);
HWY_EXPORT(add_row_sums);
HWY_EXPORT(polynomial_row);
HWY_EXPORT(polynomial_slope_row);
HWY_EXPORT(limited_exp_row);
HWY_EXPORT(limited_exp_slope_row);
HWY_EXPORT(gaussian_row);
HWY_EXPORT(product_row);

namespace kernel {

void multiply(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
              std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  HWY_DYNAMIC_DISPATCH(multiply_tiles)(c, ldc, a, lda, b, ldb, rows, columns, depth);
}

void multiply_add(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b,
                  std::int64_t ldb, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  HWY_DYNAMIC_DISPATCH(multiply_add_tiles)(c, ldc, a, lda, b, ldb, rows, columns, depth);
}

void multiply_transposed(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b,
                         std::int64_t ldb, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  HWY_DYNAMIC_DISPATCH(multiply_transposed_tiles)(c, ldc, a, lda, b, ldb, rows, columns, depth);
}

void transpose(float* to, std::int64_t ldt, const float* from, std::int64_t ldf, std::int64_t rows,
               std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_tile)(to, ldt, from, ldf, rows, columns);
}

bool add_row_sums(double* sums, const float* s, std::int64_t lds, std::int64_t rows, std::int64_t columns) {
  return HWY_DYNAMIC_DISPATCH(add_row_sums)(sums, s, lds, rows, columns);
}

void polynomial_row(float* s, const float* x, std::int64_t count, float scale, float offset, int power) {
  HWY_DYNAMIC_DISPATCH(polynomial_row)(s, x, count, scale, offset, power);
}

void polynomial_slope_row(float* w, const float* x, const float* ds, std::int64_t count, float scale,
                          float offset, int power) {
  HWY_DYNAMIC_DISPATCH(polynomial_slope_row)(w, x, ds, count, scale, offset, power);
}

void limited_exp_row(float* s, const float* x, std::int64_t count, float scale) {
  HWY_DYNAMIC_DISPATCH(limited_exp_row)(s, x, count, scale);
}

void limited_exp_slope_row(float* w, const float* s, const float* ds, std::int64_t count, float scale) {
  HWY_DYNAMIC_DISPATCH(limited_exp_slope_row)(w, s, ds, count, scale);
}

void gaussian_row(float* s, const float* x, const float* others, std::int64_t count, float own,
                  float factor) {
  HWY_DYNAMIC_DISPATCH(gaussian_row)(s, x, others, count, own, factor);
}

void product_row(float* w, const float* s, const float* ds, std::int64_t count, float factor) {
  HWY_DYNAMIC_DISPATCH(product_row)(w, s, ds, count, factor);
}

}  // namespace kernel
}  // namespace linnet
#endif
