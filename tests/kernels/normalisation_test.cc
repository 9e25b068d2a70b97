#include "kernels/normalisation.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/samples.h"
#include "kernels/targets.h"
#include "support/contexts.h"

namespace linnet::kernels {
namespace {

constexpr double epsilon = 1e-5;

struct Expected {
  std::vector<double> y, dx, dgain, dbias;
};

Expected expected_layer_norm(View<const float> x, View<const float> gain, View<const float> bias,
                             View<const float> dy) {
  const std::int64_t n = x.extent(1);
  Expected result;
  result.dgain.resize(static_cast<std::size_t>(n));
  result.dbias.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    double mean = 0, variance = 0, sum = 0, product = 0;
    for (std::int64_t j = 0; j < n; ++j) mean += x(i, j) / static_cast<double>(n);
    for (std::int64_t j = 0; j < n; ++j)
      variance += (x(i, j) - mean) * (x(i, j) - mean) / static_cast<double>(n);
    const double scale = 1 / std::sqrt(variance + epsilon);
    for (std::int64_t j = 0; j < n; ++j) {
      const double normal = (x(i, j) - mean) * scale, g = static_cast<double>(dy(i, j)) * *gain.at(j);
      result.y.push_back(normal * *gain.at(j) + *bias.at(j));
      result.dgain[static_cast<std::size_t>(j)] += dy(i, j) * normal;
      result.dbias[static_cast<std::size_t>(j)] += dy(i, j);
      sum += g / static_cast<double>(n);
      product += g * normal / static_cast<double>(n);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      const double normal = (x(i, j) - mean) * scale;
      result.dx.push_back(scale * (static_cast<double>(dy(i, j)) * *gain.at(j) - sum - normal * product));
    }
  }
  return result;
}

void expect_layer_norm_right(std::int64_t rows, std::int64_t n, float offset, double tolerance) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << n << " around " << offset);
  Tensor x_memory = normal({rows, n + 3}, 1), gain = normal({n}, 2), bias = normal({n}, 3),
         dy = normal({rows, n}, 4);
  for (float& v : x_memory.span<float>()) v += offset;
  const View<float> x = strided(x_memory, rows, n, 3);
  const Expected expected = expected_layer_norm(x, gain.view<float>(), bias.view<float>(), dy.view<float>());
  Tensor y = Tensor::of<float>({rows, n}), stats = Tensor::of<float>({rows, 2});
  layer_norm_forward(any_context(), y.view<float>(), stats.view<float>(), x, gain.view<float>(),
                     bias.view<float>(), epsilon);
  EXPECT_LT(relative_error(y.span<float>(), expected.y), tolerance);

  Tensor dgain = Tensor::of<float>({n}), dbias = Tensor::of<float>({n}), dx = dy.clone();
  layer_norm_backward(any_context(), dx.view<float>(), dgain.view<float>(), dbias.view<float>(),
                      dx.view<float>(), x, stats.view<float>(), gain.view<float>(), false);
  if (n > 1) {  // one element has no gradient, only rounding
    EXPECT_LT(relative_error(dx.span<float>(), expected.dx), tolerance);
    EXPECT_LT(relative_error(dgain.span<float>(), expected.dgain), tolerance);
  }
  EXPECT_LT(relative_error(dbias.span<float>(), expected.dbias), 1e-6);

  // Added to what is there.
  Tensor more = normal({rows, n}, 5);
  std::vector<double> sum = expected.dx;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more.span<float>()[i];
  layer_norm_backward(any_context(), more.view<float>(), dgain.view<float>(), dbias.view<float>(),
                      dy.view<float>(), x, stats.view<float>(), gain.view<float>(), true);
  EXPECT_LT(relative_error(more.span<float>(), sum), tolerance);
}

void expect_rms_norm_right(std::int64_t rows, std::int64_t n, float offset) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << n << " around " << offset);
  Tensor x_memory = normal({rows, n + 3}, 1), gain = normal({n}, 2), dy = normal({rows, n}, 4);
  for (float& v : x_memory.span<float>()) v += offset;
  const View<float> x = strided(x_memory, rows, n, 3);
  std::vector<double> y, dx, dgain(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < rows; ++i) {
    double square = epsilon, product = 0;
    for (std::int64_t j = 0; j < n; ++j)
      square += static_cast<double>(x(i, j)) * x(i, j) / static_cast<double>(n);
    const double scale = 1 / std::sqrt(square);
    const auto gradient = [&](std::int64_t j) {
      return static_cast<double>(dy.view<float>()(i, j)) * gain.view<float>()(j);
    };
    for (std::int64_t j = 0; j < n; ++j) {
      y.push_back(x(i, j) * scale * gain.view<float>()(j));
      dgain[static_cast<std::size_t>(j)] += dy.view<float>()(i, j) * x(i, j) * scale;
      product += gradient(j) * x(i, j);
    }
    for (std::int64_t j = 0; j < n; ++j)
      dx.push_back(scale * gradient(j) - x(i, j) * product * scale * scale * scale / static_cast<double>(n));
  }
  Tensor actual = Tensor::of<float>({rows, n}), stats = Tensor::of<float>({rows, 2});
  rms_norm_forward(any_context(), actual.view<float>(), stats.view<float>(), x, gain.view<float>(), epsilon);
  EXPECT_LT(relative_error(actual.span<float>(), y), 2e-6);
  Tensor gradient = dy.clone(), gains = Tensor::of<float>({n});
  rms_norm_backward(any_context(), gradient.view<float>(), gains.view<float>(), gradient.view<float>(), x,
                    stats.view<float>(), gain.view<float>(), false);
  if (n > 1) {  // one element has next to no gradient
    EXPECT_LT(relative_error(gradient.span<float>(), dx), 1e-5);
  }
  EXPECT_LT(relative_error(gains.span<float>(), dgain), 2e-6);

  // Added to what is there.
  Tensor more = normal({rows, n}, 5);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += more.span<float>()[i];
  rms_norm_backward(any_context(), more.view<float>(), gains.view<float>(), dy.view<float>(), x,
                    stats.view<float>(), gain.view<float>(), true);
  EXPECT_LT(relative_error(more.span<float>(), dx), 1e-5);
}

TEST(RmsNorm, MatchesDoublePrecisionOnEveryTarget) {
  for_every_target([] {
    for (const std::int64_t rows : {0, 1, 65, 130})
      for (const std::int64_t n : {1, 5, 63, 64, 65, 257})
        for (const float offset : {0.0f, 100.0f}) expect_rms_norm_right(rows, n, offset);
  });
}

TEST(RmsNorm, DoesNotDependOnThreads) {
  Tensor x = normal({500, 100}, 1), gain = normal({100}, 2), dy = normal({500, 100}, 3);
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    Context context(threads);
    Tensor y = Tensor::of<float>({500, 100}), stats = Tensor::of<float>({500, 2}),
           dgain = Tensor::of<float>({100});
    rms_norm_forward(context, y.view<float>(), stats.view<float>(), x.view<float>(), gain.view<float>(),
                     1e-5f);
    rms_norm_backward(context, y.view<float>(), dgain.view<float>(), dy.view<float>(), x.view<float>(),
                      stats.view<float>(), gain.view<float>(), true);
    std::vector<float> all;
    for (Tensor* tensor : {&y, &stats, &dgain})
      all.insert(all.end(), tensor->span<float>().begin(), tensor->span<float>().end());
    if (first.empty()) first = all;
    EXPECT_TRUE(same_bits(all, first));
  }
}

TEST(LayerNorm, MatchesDoublePrecisionOnEveryTarget) {
  for_every_target([] {
    for (const std::int64_t rows : {0, 1, 65, 130})
      for (const std::int64_t n : {1, 5, 63, 64, 65, 257}) expect_layer_norm_right(rows, n, 0, 2e-6);
  });
}

TEST(LayerNorm, KeepsItsAccuracyFarFromZero) {
  for_every_target([] { expect_layer_norm_right(20, 256, 100, 1e-5); });
}

TEST(LayerNorm, DoesNotDependOnThreads) {
  Tensor x = normal({500, 100}, 1), gain = normal({100}, 2), dy = normal({500, 100}, 3);
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    Context context(threads);
    Tensor y = Tensor::of<float>({500, 100}), stats = Tensor::of<float>({500, 2});
    Tensor dgain = Tensor::of<float>({100}), dbias = Tensor::of<float>({100});
    layer_norm_forward(context, y.view<float>(), stats.view<float>(), x.view<float>(), gain.view<float>(),
                       gain.view<float>(), 1e-5f);
    layer_norm_backward(context, y.view<float>(), dgain.view<float>(), dbias.view<float>(), dy.view<float>(),
                        x.view<float>(), stats.view<float>(), gain.view<float>(), true);
    std::vector<float> all;
    for (Tensor* tensor : {&y, &stats, &dgain, &dbias})
      all.insert(all.end(), tensor->span<float>().begin(), tensor->span<float>().end());
    if (first.empty()) first = all;
    EXPECT_TRUE(same_bits(all, first));
  }
}

TEST(Norms, RoundWhatBecomesBf16) {
  for_every_target([] {
    for (const std::int64_t n : {1, 5, 63, 64, 65, 257}) {
      const Tensor x = normal({67, n}, 1), gain = normal({n}, 2), bias = normal({n}, 3);
      for (const bool root : {false, true}) {
        Tensor wide = Tensor::of<float>({67, n}), narrow(DType::bf16, {67, n});
        for (const FloatView& y : {FloatView(wide.view<float>()), FloatView(narrow.view<bf16>())}) {
          if (root)
            rms_norm_forward(any_context(), y, {}, x.view<float>(), gain.view<float>(), 1e-5f);
          else
            layer_norm_forward(any_context(), y, {}, x.view<float>(), gain.view<float>(), bias.view<float>(),
                               1e-5f);
        }
        for (std::int64_t i = 0; i < 67 * n; ++i)
          ASSERT_EQ(narrow.span<bf16>()[static_cast<std::size_t>(i)].bits,
                    to_bf16(wide.span<float>()[static_cast<std::size_t>(i)]).bits);
      }
    }
  });
}

TEST(LayerNorm, KeepsNaNInItsRow) {
  Tensor x = normal({5, 70}, 1), gain = normal({70}, 2), y = Tensor::of<float>({5, 70});
  x.view<float>()(3, 69) = std::numeric_limits<float>::quiet_NaN();
  layer_norm_forward(any_context(), y.view<float>(), {}, x.view<float>(), gain.view<float>(),
                     gain.view<float>(), 1e-5f);
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 70; ++j) ASSERT_EQ(std::isnan(y.view<float>()(i, j)), i == 3);
}

}  // namespace
}  // namespace linnet::kernels
