#include "kernels/normalisation.h"

#include <cassert>
#include <cmath>
#include <type_traits>

#include "base/workspace.h"
#include "kernels/narrow.h"
#include "kernels/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/normalisation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline float sum_of(FloatVector v) { return hn::GetLane(hn::SumOfLanes(FloatTag(), v)); }

/// Calls rows(y as what it is, whether to round fast) with a compile-time constant.
template <class Rows>
HWY_INLINE void with_type(FloatView y, bool fast, const Rows& rows) {
  if (y.dtype() == DType::f32) return rows(y.as<float>(), std::false_type());
  if (fast) return rows(y.as<bf16>(), std::true_type());
  rows(y.as<bf16>(), std::false_type());
}

template <bool fast, class T>
void forward_rows(View<T> y, View<float> stats, View<const float> x, const float* gain, const float* bias,
                  float epsilon) {
  const FloatTag d;
  const std::int64_t n = x.extent(1);
  const float per = 1.0f / static_cast<float>(n);
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    const float* row = x.at(i);
    FloatVector sum = hn::Zero(d);
    for_vectors(n, [&](auto lanes, std::int64_t j) { sum = hn::Add(sum, lanes.load(row + j)); });
    const float estimate = sum_of(sum) * per;
    // A second pass around the estimate gives the variance without cancellation, and mends the mean's own
    // rounding.
    FloatVector rest = hn::Zero(d), squares = hn::Zero(d);
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      const FloatVector centred = hn::Sub(lanes.load(row + j, estimate), hn::Set(d, estimate));
      rest = hn::Add(rest, centred);
      squares = hn::MulAdd(centred, centred, squares);
    });
    const float shift = sum_of(rest) * per;
    const float mean = estimate + shift;
    const float variance = sum_of(squares) * per - shift * shift;
    // Never negative, and NaN stays NaN.
    const float scale = 1.0f / std::sqrt((variance < 0 ? 0 : variance) + epsilon);
    const FloatVector centre = hn::Set(d, mean), factor = hn::Set(d, scale);
    T* to = y.at(i);
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      const FloatVector normal = hn::Mul(hn::Sub(lanes.load(row + j), centre), factor);
      lanes.template store<fast>(hn::MulAdd(normal, lanes.load(gain + j), lanes.load(bias + j)), to + j);
    });
    if (stats.data() != nullptr) {
      stats(i, 0) = mean;
      stats(i, 1) = scale;
    }
  }
}

void layer_forward(FloatView y, View<float> stats, View<const float> x, const float* gain, const float* bias,
                   float epsilon, bool fast) {
  with_type(y, fast, [&](auto to, auto known) {
    forward_rows<decltype(known)::value>(to, stats, x, gain, bias, epsilon);
  });
}

// sums [2, n] receives this block's part of dgain and dbias.
void backward_rows(View<float> dx, float* sums, View<const float> dy, View<const float> x,
                   View<const float> stats, const float* gain, bool add) {
  const FloatTag d;
  const std::int64_t n = x.extent(1);
  const float per = 1.0f / static_cast<float>(n);
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    const float* row = x.at(i);
    const float* gradient = dy.at(i);
    const FloatVector mean = hn::Set(d, stats(i, 0)), scale = hn::Set(d, stats(i, 1));
    FloatVector sum = hn::Zero(d), product = hn::Zero(d);
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      const FloatVector g = lanes.load(gradient + j);
      const FloatVector normal = hn::Mul(hn::Sub(lanes.load(row + j), mean), scale);
      const FloatVector weighted = hn::Mul(g, lanes.load(gain + j));
      sum = hn::Add(sum, weighted);
      product = hn::MulAdd(weighted, normal, product);
      lanes.store(hn::MulAdd(g, normal, lanes.load(sums + j)), sums + j);
      lanes.store(hn::Add(lanes.load(sums + n + j), g), sums + n + j);
    });
    const FloatVector centre = hn::Set(d, sum_of(sum) * per), slope = hn::Set(d, sum_of(product) * per);
    float* to = dx.at(i);
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      const FloatVector normal = hn::Mul(hn::Sub(lanes.load(row + j), mean), scale);
      const FloatVector weighted = hn::Mul(lanes.load(gradient + j), lanes.load(gain + j));
      FloatVector result = hn::Mul(scale, hn::NegMulAdd(normal, slope, hn::Sub(weighted, centre)));
      if (add) result = hn::Add(result, lanes.load(to + j));
      lanes.store(result, to + j);
    });
  }
}

template <bool fast, class T>
void rms_forward_rows(View<T> y, View<float> stats, View<const float> x, const float* gain, float epsilon) {
  const std::int64_t n = x.extent(1);
  const float per = 1.0f / static_cast<float>(n);
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    const float* row = x.at(i);
    FloatVector squares = hn::Zero(FloatTag());
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      const FloatVector value = lanes.load(row + j);
      squares = hn::MulAdd(value, value, squares);
    });
    const float scale = 1.0f / std::sqrt(sum_of(squares) * per + epsilon);
    const FloatVector factor = hn::Set(FloatTag(), scale);
    T* to = y.at(i);
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      lanes.template store<fast>(hn::Mul(hn::Mul(lanes.load(row + j), factor), lanes.load(gain + j)), to + j);
    });
    if (stats.data() != nullptr) stats(i, 0) = scale;
  }
}

void rms_forward(FloatView y, View<float> stats, View<const float> x, const float* gain, float epsilon,
                 bool fast) {
  with_type(y, fast, [&](auto to, auto known) {
    rms_forward_rows<decltype(known)::value>(to, stats, x, gain, epsilon);
  });
}

// sums [n] receives this block's part of dgain.
void rms_backward_rows(View<float> dx, float* sums, View<const float> dy, View<const float> x,
                       View<const float> stats, const float* gain, bool add) {
  const FloatTag d;
  const std::int64_t n = x.extent(1);
  const float per = 1.0f / static_cast<float>(n);
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    const float* row = x.at(i);
    const float* gradient = dy.at(i);
    const FloatVector scale = hn::Set(d, stats(i, 0));
    FloatVector product = hn::Zero(d);
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      const FloatVector g = lanes.load(gradient + j);
      const FloatVector normal = hn::Mul(lanes.load(row + j), scale);
      product = hn::MulAdd(hn::Mul(g, lanes.load(gain + j)), normal, product);
      lanes.store(hn::MulAdd(g, normal, lanes.load(sums + j)), sums + j);
    });
    const FloatVector slope = hn::Set(d, sum_of(product) * per);
    float* to = dx.at(i);
    for_vectors(n, [&](auto lanes, std::int64_t j) {
      const FloatVector normal = hn::Mul(lanes.load(row + j), scale);
      const FloatVector weighted = hn::Mul(lanes.load(gradient + j), lanes.load(gain + j));
      FloatVector result = hn::Mul(scale, hn::NegMulAdd(normal, slope, weighted));
      if (add) result = hn::Add(result, lanes.load(to + j));
      lanes.store(result, to + j);
    });
  }
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(layer_forward);
HWY_EXPORT(backward_rows);
HWY_EXPORT(rms_forward);
HWY_EXPORT(rms_backward_rows);

// Whether y is to be rounded, by the processor's own instruction.
bool rounds_fast(FloatView y) { return y.dtype() == DType::bf16 && multiplies_groups(WeightType::bf16); }

// Rows whose contributions to dgain and dbias are added in f32.
constexpr std::int64_t gradient_rows = 64;

std::int64_t blocks_of(std::int64_t rows) { return (rows + gradient_rows - 1) / gradient_rows; }

// to [n] += the sums over blocks of `parts` [blocks, at least n], in order and in f64.
void add_parts(Context& context, View<float> to, View<const float> parts) {
  parallel_blocks(context, to.size(), 64, [&](std::int64_t begin, std::int64_t end) {
    double sums[64] = {};
    for (std::int64_t block = 0; block < parts.extent(0); ++block)
      for (std::int64_t j = begin; j < end; ++j) sums[j - begin] += parts(block, j);
    for (std::int64_t j = begin; j < end; ++j) *to.at(j) += static_cast<float>(sums[j - begin]);
  });
}

}  // namespace

void layer_norm_forward(Context& context, FloatView y, View<float> stats, View<const float> x,
                        View<const float> gain, View<const float> bias, float epsilon) {
  assert(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && gain.size() == x.extent(1));
  const auto rows = HWY_DYNAMIC_DISPATCH(layer_forward);
  const bool fast = rounds_fast(y);
  parallel_blocks(context, x.extent(0), rows_of_piece(x.extent(1)),
                  [&](std::int64_t begin, std::int64_t end) {
                    rows(y.slice(0, begin, end), stats.data() == nullptr ? stats : stats.slice(0, begin, end),
                         x.slice(0, begin, end), gain.data(), bias.data(), epsilon, fast);
                  });
}

void layer_norm_backward(Context& context, View<float> dx, View<float> dgain, View<float> dbias,
                         View<const float> dy, View<const float> x, View<const float> stats,
                         View<const float> gain, bool add) {
  const std::int64_t n = x.extent(1);
  assert(dx.extent(0) == x.extent(0) && dy.extent(0) == x.extent(0) && gain.size() == n);
  const std::int64_t blocks = blocks_of(x.extent(0));
  const auto rows = HWY_DYNAMIC_DISPATCH(backward_rows);
  Workspace workspace(context);
  const View<float> parts(workspace.take_zeroed(blocks * 2 * n), {blocks, 2 * n});
  parallel_blocks(context, x.extent(0), gradient_rows, [&](std::int64_t begin, std::int64_t end) {
    rows(dx.slice(0, begin, end), parts.at(begin / gradient_rows), dy.slice(0, begin, end),
         x.slice(0, begin, end), stats.slice(0, begin, end), gain.data(), add);
  });
  add_parts(context, dgain, parts);
  add_parts(context, dbias, parts.slice(1, n, 2 * n));
}

void rms_norm_forward(Context& context, FloatView y, View<float> stats, View<const float> x,
                      View<const float> gain, float epsilon) {
  assert(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && gain.size() == x.extent(1));
  const auto rows = HWY_DYNAMIC_DISPATCH(rms_forward);
  const bool fast = rounds_fast(y);
  parallel_blocks(context, x.extent(0), rows_of_piece(x.extent(1)),
                  [&](std::int64_t begin, std::int64_t end) {
                    rows(y.slice(0, begin, end), stats.data() == nullptr ? stats : stats.slice(0, begin, end),
                         x.slice(0, begin, end), gain.data(), epsilon, fast);
                  });
}

void rms_norm_backward(Context& context, View<float> dx, View<float> dgain, View<const float> dy,
                       View<const float> x, View<const float> stats, View<const float> gain, bool add) {
  const std::int64_t n = x.extent(1), blocks = blocks_of(x.extent(0));
  assert(dx.extent(0) == x.extent(0) && dy.extent(0) == x.extent(0) && gain.size() == n);
  const auto rows = HWY_DYNAMIC_DISPATCH(rms_backward_rows);
  Workspace workspace(context);
  const View<float> parts(workspace.take_zeroed(blocks * n), {blocks, n});
  parallel_blocks(context, x.extent(0), gradient_rows, [&](std::int64_t begin, std::int64_t end) {
    rows(dx.slice(0, begin, end), parts.at(begin / gradient_rows), dy.slice(0, begin, end),
         x.slice(0, begin, end), stats.slice(0, begin, end), gain.data(), add);
  });
  add_parts(context, dgain, parts);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
