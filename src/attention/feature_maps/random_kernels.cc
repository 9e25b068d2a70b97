#include "attention/feature_maps/random_kernels.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/workspace.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/feature_maps/random_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "attention/feature_maps/hadamard-inl.h"
#include "attention/tiles/gemm-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/simd_math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace linnet::random_maps::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace tiles = linnet::HWY_NAMESPACE;
namespace math = linnet::kernels::HWY_NAMESPACE;
using math::for_vectors;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;

constexpr std::int64_t kRows = RandomProjection::tile_rows;
constexpr float kLeast = static_cast<float>(RandomProjection::least);
constexpr float kRaised = static_cast<float>(RandomProjection::raised);
constexpr float kLowest = std::numeric_limits<float>::lowest();

/// c [rows, columns] = a [rows, depth] b for any number of rows.
using Project = tiles::Multiply<tiles::Left::plain, tiles::Into::assign, tiles::Blocks::any>;

/// ‖x‖².
HWY_INLINE float square(const float* x, std::int64_t count) {
  V sum = hn::Zero(d);
  for_vectors(count, [&](auto lanes, std::int64_t i) HWY_ATTR {
    const V v = lanes.load(x + i);
    sum = hn::MulAdd(v, v, sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Largest of f(p_i).
template <class F>
HWY_INLINE float largest(const float* p, std::int64_t count, F f) {
  V top = hn::Set(d, kLowest);
  for_vectors(count, [&](auto lanes, std::int64_t i)
                         HWY_ATTR { top = hn::Max(top, lanes.keep(f(lanes.load(p + i)), kLowest)); });
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

/// What a row's values and gradients are made of. `p` [m] are the products w·x, `half` is ‖x‖²/2, both of the
/// scaled x.
struct Row {
  std::int64_t count;  // m
  const float* p;
  const float* phases;
  double half;
  float factor;  // √(1/F), or √(2/F) of the trigonometric maps
};

// Each map as Values, which writes y and returns the log-scale, and Gradient, which writes g [m], e^s ∂L/∂p,
// and returns what ∂s/∂x = ±x of the log-scale's explicit part is multiplied by.

struct Favor {
  static constexpr bool kProjectsAgain = false;

  static double values(const Row& row, float* y) {
    const float top = largest(row.p, row.count, [](V v) HWY_ATTR { return v; }) - kRaised;
    const V shift = hn::Set(d, top), factor = hn::Set(d, row.factor);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      const V e = math::fast_exp(d, hn::Sub(lanes.load(row.p + i), shift));
      lanes.store(hn::Mul(e, factor), y + i);
    });
    return static_cast<double>(top) - row.half;
  }

  static float gradient(const Row& row, float* g, const float* dy, const float* y) {
    V sum = hn::Zero(d);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      const V product = hn::Mul(lanes.load(dy + i), lanes.load(y + i));
      sum = hn::Add(sum, product);
      lanes.store(product, g + i);
    });
    return -hn::GetLane(hn::SumOfLanes(d, sum));
  }
};

struct Hyperbolic {
  static constexpr bool kProjectsAgain = false;

  static double values(const Row& row, float* y) {
    const float top = largest(row.p, row.count, [](V v) HWY_ATTR { return hn::Abs(v); }) - kRaised;
    const V shift = hn::Set(d, top), factor = hn::Set(d, row.factor);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      const V p = lanes.load(row.p + i);
      lanes.store(hn::Mul(math::fast_exp(d, hn::Sub(p, shift)), factor), y + i);
      lanes.store(hn::Mul(math::fast_exp(d, hn::Sub(hn::Neg(p), shift)), factor), y + row.count + i);
    });
    return static_cast<double>(top) - row.half;
  }

  static float gradient(const Row& row, float* g, const float* dy, const float* y) {
    V sum = hn::Zero(d);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      const std::int64_t other = row.count + i;
      const V up = hn::Mul(lanes.load(dy + i), lanes.load(y + i));
      const V down = hn::Mul(lanes.load(dy + other), lanes.load(y + other));
      sum = hn::Add(sum, hn::Add(up, down));
      lanes.store(hn::Sub(up, down), g + i);
    });
    return -hn::GetLane(hn::SumOfLanes(d, sum));
  }
};

struct Trig {
  static constexpr bool kProjectsAgain = true;

  static double values(const Row& row, float* y) {
    const V factor = hn::Set(d, row.factor);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      V sine, cosine;
      math::fast_sin_cos(d, hn::Add(lanes.load(row.p + i), lanes.load(row.phases + i)), sine, cosine);
      lanes.store(hn::Mul(cosine, factor), y + i);
    });
    return row.half;
  }

  static float gradient(const Row& row, float* g, const float* dy, const float* y) {
    const V factor = hn::Set(d, -row.factor);
    V sum = hn::Zero(d);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      V sine, cosine;
      math::fast_sin_cos(d, hn::Add(lanes.load(row.p + i), lanes.load(row.phases + i)), sine, cosine);
      const V slope = lanes.load(dy + i);
      sum = hn::MulAdd(slope, lanes.load(y + i), sum);
      lanes.store(hn::Mul(hn::Mul(slope, sine), factor), g + i);
    });
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }
};

struct SinCos {
  static constexpr bool kProjectsAgain = false;

  static double values(const Row& row, float* y) {
    const V factor = hn::Set(d, row.factor);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      V sine, cosine;
      math::fast_sin_cos(d, lanes.load(row.p + i), sine, cosine);
      lanes.store(hn::Mul(cosine, factor), y + i);
      lanes.store(hn::Mul(sine, factor), y + row.count + i);
    });
    return row.half;
  }

  static float gradient(const Row& row, float* g, const float* dy, const float* y) {
    V sum = hn::Zero(d);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      const std::int64_t other = row.count + i;
      const V cosine = lanes.load(y + i), sine = lanes.load(y + other);
      const V of_cosine = lanes.load(dy + i), of_sine = lanes.load(dy + other);
      sum = hn::MulAdd(of_cosine, cosine, hn::MulAdd(of_sine, sine, sum));
      lanes.store(hn::Sub(hn::Mul(of_sine, cosine), hn::Mul(of_cosine, sine)), g + i);
    });
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }
};

/// (exp(p) + ε)/√F with s = max(p, 0): 0, or ε e^−s would overflow where all p are far below it.
struct Exp {
  static constexpr bool kProjectsAgain = true;

  static float scale_of(const Row& row) {
    return std::max(0.0f, largest(row.p, row.count, [](V v) HWY_ATTR { return v; }));
  }

  static double values(const Row& row, float* y) {
    const float scale = scale_of(row);
    const V shift = hn::Set(d, scale), factor = hn::Set(d, row.factor);
    const V least = hn::Mul(hn::Set(d, kLeast), math::fast_exp(d, hn::Neg(shift)));
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      const V e = math::fast_exp(d, hn::Sub(lanes.load(row.p + i), shift));
      lanes.store(hn::Mul(hn::Add(e, least), factor), y + i);
    });
    return scale;
  }

  static float gradient(const Row& row, float* g, const float* dy, const float* /*y*/) {
    const V shift = hn::Set(d, scale_of(row)), factor = hn::Set(d, row.factor);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      const V e = math::fast_exp(d, hn::Sub(lanes.load(row.p + i), shift));
      lanes.store(hn::Mul(hn::Mul(e, factor), lanes.load(dy + i)), g + i);
    });
    return 0;
  }
};

struct Relu {
  static V value(V p) { return hn::IfThenZeroElse(hn::Lt(p, hn::Zero(d)), p); }
  static V slope(V p) { return hn::IfThenElseZero(hn::Gt(p, hn::Zero(d)), hn::Set(d, 1.0f)); }
};

struct Gelu {
  static V value(V p) {
    V density, cdf;
    math::fast_normal(d, p, density, cdf);
    return hn::Mul(p, cdf);
  }
  static V slope(V p) {
    V density, cdf;
    math::fast_normal(d, p, density, cdf);
    return hn::MulAdd(p, density, cdf);
  }
};

struct Sigmoid {
  static V value(V p) { return math::fast_sigmoid(d, p); }
  static V slope(V p) { return hn::Mul(value(p), math::fast_sigmoid(d, hn::Neg(p))); }
};

struct Tanh {
  static V value(V p) { return math::fast_tanh(d, p); }
  static V slope(V p) {
    const V tanh = value(p);
    return hn::NegMulAdd(tanh, tanh, hn::Set(d, 1.0f));
  }
};

struct Abs {
  static V value(V p) { return hn::Abs(p); }
  static V slope(V p) {
    return hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), hn::CopySign(hn::Set(d, 1.0f), p));
  }
};

struct Cos {
  static V value(V p) {
    V sine, cosine;
    math::fast_sin_cos(d, p, sine, cosine);
    return cosine;
  }
  static V slope(V p) {
    V sine, cosine;
    math::fast_sin_cos(d, p, sine, cosine);
    return hn::Neg(sine);
  }
};

/// (f(p) + ε)/√F.
template <class F>
struct General {
  static constexpr bool kProjectsAgain = true;

  static double values(const Row& row, float* y) {
    const V factor = hn::Set(d, row.factor), least = hn::Set(d, kLeast);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      lanes.store(hn::Mul(hn::Add(F::value(lanes.load(row.p + i)), least), factor), y + i);
    });
    return 0;
  }

  static float gradient(const Row& row, float* g, const float* dy, const float* /*y*/) {
    const V factor = hn::Set(d, row.factor);
    for_vectors(row.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
      lanes.store(hn::Mul(hn::Mul(F::slope(lanes.load(row.p + i)), factor), lanes.load(dy + i)), g + i);
    });
    return 0;
  }
};

/// Calls run(forward, backward, begin) with the diagonals of both products for every block of Hadamard
/// directions, whose first one is `begin`.
template <class Run>
HWY_INLINE void for_each_block(const RandomProjection& projection, Run run) {
  const std::int64_t dim = projection.head_dim;
  const float *small = projection.small.span<float>().data(), *signs = projection.signs.span<float>().data(),
              *lengths = projection.lengths.span<float>().data(),
              *small_lengths = projection.small_lengths.span<float>().data();
  for (std::int64_t begin = 0; begin < projection.directions; begin += dim) {
    const float *first = signs + kDiagonals * begin, *second = first + dim, *third = second + dim;
    run(Diagonals{small + begin, second, third, lengths + begin},
        Diagonals{small_lengths + begin, third, second, first}, begin);
  }
}

/// p [rows, padded m] = x Wᵀ.
HWY_INLINE void project_rows(const RandomProjection& projection, float* p, View<const float> x,
                             std::int64_t first, std::int64_t rows) {
  const std::int64_t dim = projection.head_dim;
  if (projection.structured)
    return for_each_block(projection,
                          [&](const Diagonals& diagonals, const Diagonals&, std::int64_t begin) HWY_ATTR {
                            multiply_by_block(diagonals, {p + begin, projection.padded_rows},
                                              {x.at(first), x.stride(0)}, rows, dim);
                          });
  const auto columns = static_cast<std::size_t>(projection.padded_rows);
  tiles::for_each_panel(Project{p, columns, x.at(first), static_cast<std::size_t>(x.stride(0)),
                                projection.across.span<float>().data(), columns,
                                static_cast<std::size_t>(rows), static_cast<std::size_t>(dim)},
                        columns);
}

/// sums [rows, padded E] = g W of g [rows, padded m].
HWY_INLINE void sum_directions(const RandomProjection& projection, float* sums, float* g, std::int64_t rows) {
  const std::int64_t width = projection.padded_dim, columns = projection.padded_rows,
                     dim = projection.head_dim;
  if (!projection.structured) {
    const auto stride = static_cast<std::size_t>(width);
    return tiles::for_each_panel(
        Project{sums, stride, g, static_cast<std::size_t>(columns), projection.along.span<float>().data(),
                stride, static_cast<std::size_t>(rows), static_cast<std::size_t>(projection.directions)},
        stride);
  }
  for_each_block(projection, [&](const Diagonals&, const Diagonals& diagonals, std::int64_t begin) HWY_ATTR {
    const std::int64_t used = std::min(dim, projection.directions - begin);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = g + r * columns + begin;
      std::fill(row + used, row + dim, 0.0f);
    }
    multiply_by_block(diagonals, {g + begin, columns}, {g + begin, columns}, rows, dim);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* block = g + r * columns + begin;
      float* sum = sums + r * width;
      if (begin == 0)
        std::copy_n(block, dim, sum);
      else
        for_vectors(dim, [&](auto lanes, std::int64_t i) HWY_ATTR {
          lanes.store(hn::Add(lanes.load(sum + i), lanes.load(block + i)), sum + i);
        });
    }
  });
}

Row row_of(const RandomProjection& projection) {
  const bool waves = projection.map == RandomMap::trig || projection.map == RandomMap::sincos;
  return {projection.directions, nullptr, projection.phases.span<float>().data(), 0,
          static_cast<float>(std::sqrt((waves ? 2.0 : 1.0) / static_cast<double>(projection.features)))};
}

template <class Map>
void forward(const RandomProjection& projection, float* scratch, View<float> y, double* log_scale,
             View<const float> x) {
  Row row = row_of(projection);
  for (std::int64_t first = 0; first < x.extent(0); first += kRows) {
    const std::int64_t rows = std::min(kRows, x.extent(0) - first);
    project_rows(projection, scratch, x, first, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      row.p = scratch + r * projection.padded_rows;
      if (log_scale != nullptr)
        row.half = 0.5 * projection.square_scale * square(x.at(first + r), projection.head_dim);
      const double scale = Map::values(row, y.at(first + r));
      if (log_scale != nullptr) log_scale[first + r] = scale;
    }
  }
}

template <class Map>
void backward(const RandomProjection& projection, float* scratch, View<float> dx, View<const float> dy,
              View<const float> x, View<const float> y) {
  Row row = row_of(projection);
  const std::int64_t width = projection.padded_dim;
  float* sums = scratch + kRows * projection.padded_rows;
  float radial[kRows];
  for (std::int64_t first = 0; first < x.extent(0); first += kRows) {
    const std::int64_t rows = std::min(kRows, x.extent(0) - first);
    if (Map::kProjectsAgain) project_rows(projection, scratch, x, first, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* g = scratch + r * projection.padded_rows;
      row.p = g;
      radial[r] = static_cast<float>(projection.square_scale) *
                  Map::gradient(row, g, dy.at(first + r), y.at(first + r));
    }
    sum_directions(projection, sums, scratch, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const V factor = hn::Set(d, radial[r]);
      const float *sum = sums + r * width, *from = x.at(first + r);
      float* to = dx.at(first + r);
      for_vectors(projection.head_dim, [&](auto lanes, std::int64_t i) HWY_ATTR {
        lanes.store(hn::MulAdd(factor, lanes.load(from + i), lanes.load(sum + i)), to + i);
      });
    }
  }
}

/// Calls run with the map of that name.
template <class Run>
void with_map(RandomMap map, const Run& run) {
  switch (map) {
    case RandomMap::favor:
      return run(Favor());
    case RandomMap::trig:
      return run(Trig());
    case RandomMap::sincos:
      return run(SinCos());
    case RandomMap::hyperbolic:
      return run(Hyperbolic());
    case RandomMap::relu:
      return run(General<Relu>());
    case RandomMap::gelu:
      return run(General<Gelu>());
    case RandomMap::sigmoid:
      return run(General<Sigmoid>());
    case RandomMap::tanh:
      return run(General<Tanh>());
    case RandomMap::abs:
      return run(General<Abs>());
    case RandomMap::cos:
      return run(General<Cos>());
    case RandomMap::exp:
      return run(Exp());
  }
}

void forward_of(const RandomProjection& projection, float* scratch, View<float> y, double* log_scale,
                View<const float> x) {
  with_map(projection.map, [&](auto map) { forward<decltype(map)>(projection, scratch, y, log_scale, x); });
}

void backward_of(const RandomProjection& projection, float* scratch, View<float> dx, View<const float> dy,
                 View<const float> x, View<const float> y) {
  with_map(projection.map, [&](auto map) { backward<decltype(map)>(projection, scratch, dx, dy, x, y); });
}

}  // namespace linnet::random_maps::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace random_maps {
namespace {

HWY_EXPORT(forward_of);
HWY_EXPORT(backward_of);

/// Calls run(memory) with the working memory of a tile.
template <class Run>
void with_memory(Context* own, const RandomProjection& projection, const Run& run) {
  if (own == nullptr) {
    Context made(1);
    return with_memory(&made, projection, run);
  }
  Workspace workspace(*own);
  run(workspace.take(static_cast<std::size_t>(RandomProjection::tile_rows *
                                              (projection.padded_rows + projection.padded_dim))));
}

std::int64_t padded(std::int64_t count) { return (count + 15) / 16 * 16; }

/// Transforms need whole blocks of so many directions.
std::int64_t whole_blocks(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block * block;
}

// Highway's macro takes plain names alone where a single instruction set is compiled.
void forward_best(const RandomProjection& projection, float* memory, View<float> y, double* log_scale,
                  View<const float> x) {
  HWY_DYNAMIC_DISPATCH(forward_of)(projection, memory, y, log_scale, x);
}
void backward_best(const RandomProjection& projection, float* memory, View<float> dx, View<const float> dy,
                   View<const float> x, View<const float> y) {
  HWY_DYNAMIC_DISPATCH(backward_of)(projection, memory, dx, dy, x, y);
}

}  // namespace
}  // namespace random_maps

RandomProjection::RandomProjection(RandomMap map, const RandomDraws& draws)
    : map(map),
      head_dim(draws.head_dim),
      directions(static_cast<std::int64_t>(draws.directions.size()) / head_dim),
      features(directions * features_a_direction(map)),
      padded_dim(random_maps::padded(head_dim)),
      structured(!draws.signs.empty() && has_fast_transform(head_dim)),
      padded_rows(structured ? random_maps::whole_blocks(directions, head_dim)
                             : random_maps::padded(directions)),
      phases(Tensor::of<float>({padded_rows})),
      square_scale(1 / std::sqrt(static_cast<double>(head_dim))) {
  const double scale = std::sqrt(square_scale);
  std::ranges::copy(draws.phases, phases.span<float>().begin());
  if (structured) {
    // Three transforms multiply a row's norm by E^(3/2). The power of two in it is divided by before them, so
    // that no sum overflows where the product does not; that rounds nothing.
    const auto size = static_cast<double>(head_dim);
    const double grown = size * std::sqrt(size), power = std::exp2(std::floor(std::log2(grown)));
    const std::int64_t blocks = padded_rows / head_dim;
    signs = Tensor::of<float>({blocks, kDiagonals, head_dim});
    small = Tensor::of<float>({blocks, head_dim});
    lengths = Tensor::of<float>({padded_rows});
    small_lengths = Tensor::of<float>({padded_rows});
    std::ranges::copy(draws.signs, signs.span<float>().begin());
    for (std::int64_t b = 0; b < blocks; ++b)
      for (std::int64_t i = 0; i < head_dim; ++i)
        small.view<float>()(b, i) = signs.view<float>()(b, 0, i) / static_cast<float>(power);
    for (std::int64_t r = 0; r < directions; ++r) {
      const double length = scale * draws.lengths[static_cast<std::size_t>(r)] / grown;
      small_lengths.view<float>()(r) = static_cast<float>(length);
      lengths.view<float>()(r) = static_cast<float>(length * power);
    }
    return;
  }
  across = Tensor::of<float>({head_dim, padded_rows});
  along = Tensor::of<float>({directions, padded_dim});
  const View<float> to_across = across.view<float>(), to_along = along.view<float>();
  for (std::int64_t r = 0; r < directions; ++r)
    for (std::int64_t i = 0; i < head_dim; ++i)
      to_across(i, r) = to_along(r, i) =
          static_cast<float>(scale * draws.directions[static_cast<std::size_t>(r * head_dim + i)]);
}

void random_features(Context* own, const RandomProjection& projection, View<float> y, double* log_scale,
                     View<const float> x) {
  assert(x.rank() == 2 && x.extent(1) == projection.head_dim && y.extent(0) == x.extent(0) &&
         y.extent(1) == projection.features);
  random_maps::with_memory(own, projection, [&](float* memory) {
    random_maps::forward_best(projection, memory, y, log_scale, x);
  });
}

void random_features_backward(Context* own, const RandomProjection& projection, View<float> dx,
                              View<const float> dy, View<const float> x, View<const float> y) {
  assert(x.rank() == 2 && dx.extent(0) == x.extent(0) && dx.extent(1) == projection.head_dim);
  random_maps::with_memory(
      own, projection, [&](float* memory) { random_maps::backward_best(projection, memory, dx, dy, x, y); });
}

}  // namespace linnet
#endif  // HWY_ONCE
