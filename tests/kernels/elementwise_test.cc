#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include "kernels/activation.h"
#include "kernels/samples.h"
#include "kernels/targets.h"
#include "support/contexts.h"
#include "support/numbers.h"

namespace linnet::kernels {
namespace {

const std::int64_t lengths[] = {0, 1, 15, 63, 64, 65, 257, 40001};

double exact(double x, Activation activation) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::swiglu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

double exact_slope(double x, Activation activation) {
  constexpr double h = 1e-6;
  if (activation == Activation::relu) return x > 0;
  return (exact(x + h, activation) - exact(x - h, activation)) / (2 * h);
}

TEST(Activation, IsAccurateOnEveryTarget) {
  for_every_target([] {
    for (const Activation activation :
         {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::swiglu}) {
      Tensor x = Tensor::of<float>({100001}), y = Tensor::of<float>({100001}), dx = normal({100001}, 1);
      for (std::int64_t i = 0; i < x.size(); ++i)
        x.span<float>()[static_cast<std::size_t>(i)] = (static_cast<float>(i) - 50000.3f) * 3e-4f;
      Tensor dy = dx.clone();
      activation_forward(any_context(), y.view<float>(), x.view<float>(), activation);
      activation_backward(any_context(), dx.view<float>(), dx.view<float>(), x.view<float>(), activation);
      double error = 0, slope_error = 0;
      for (std::size_t i = 0; i < x.span<float>().size(); ++i) {
        const double v = x.span<float>()[i], g = dy.span<float>()[i];
        error =
            larger(error, std::abs(y.span<float>()[i] - exact(v, activation)) / std::max(1.0, std::abs(v)));
        slope_error = larger(slope_error, std::abs(dx.span<float>()[i] - g * exact_slope(v, activation)) /
                                              std::max(1.0, std::abs(g)));
      }
      EXPECT_LT(error, 2e-7) << static_cast<int>(activation);
      EXPECT_LT(slope_error, 1e-6) << static_cast<int>(activation);
    }
  });
}

TEST(SwiGlu, MatchesDoublePrecisionOnEveryTarget) {
  for_every_target([] {
    for (const std::int64_t n : lengths) {
      SCOPED_TRACE(testing::Message() << n << " numbers");
      Tensor a = normal({n}, 1, 3), b = normal({n}, 2), dy = normal({n}, 3), y = Tensor::of<float>({n}),
             db = Tensor::of<float>({n});
      swiglu_forward(any_context(), y.view<float>(), a.view<float>(), b.view<float>());
      Tensor da = dy.clone();  // in place
      swiglu_backward(any_context(), da.view<float>(), db.view<float>(), da.view<float>(), a.view<float>(),
                      b.view<float>());
      std::vector<double> expected, expected_da, expected_db;
      for (std::size_t i = 0; i < a.span<float>().size(); ++i) {
        const double x = a.span<float>()[i], gate = b.span<float>()[i], g = dy.span<float>()[i];
        const double sigmoid = 1 / (1 + std::exp(-x));
        expected.push_back(x * sigmoid * gate);
        expected_da.push_back(g * gate * (sigmoid + x * sigmoid * (1 - sigmoid)));
        expected_db.push_back(g * x * sigmoid);
      }
      EXPECT_LT(relative_error(y.span<float>(), expected), 1e-6);
      EXPECT_LT(relative_error(da.span<float>(), expected_da), 1e-6);
      EXPECT_LT(relative_error(db.span<float>(), expected_db), 1e-6);
    }
  });
}

TEST(SwiGlu, StaysFiniteFarFromZero) {
  for_every_target([] {
    Tensor a = Tensor::of<float>({2}), one = Tensor::of<float>({2}), y = Tensor::of<float>({2}),
           db = Tensor::of<float>({2});
    a.span<float>()[0] = -1e4f, a.span<float>()[1] = 1e4f;
    one.span<float>()[0] = one.span<float>()[1] = 1;
    swiglu_forward(any_context(), y.view<float>(), a.view<float>(), one.view<float>());
    EXPECT_NEAR(y.span<float>()[0], 0, 1e-6);
    EXPECT_EQ(y.span<float>()[1], 1e4f);
    swiglu_backward(any_context(), y.view<float>(), db.view<float>(), one.view<float>(), a.view<float>(),
                    one.view<float>());
    EXPECT_NEAR(y.span<float>()[0], 0, 1e-6);
    EXPECT_NEAR(y.span<float>()[1], 1, 1e-6);
  });
}

TEST(Activation, TakesStridedRowsInPlace) {
  Tensor memory = normal({300, 77}, 1);
  const View<float> x = strided(memory, 300, 70, 7);
  Tensor before = memory.clone();
  activation_forward(any_context(), x, x, Activation::relu);
  for (std::int64_t i = 0; i < 300; ++i)
    for (std::int64_t j = 0; j < 77; ++j) {
      const float old = before.view<float>()(i, j);
      ASSERT_EQ(memory.view<float>()(i, j), j < 70 ? std::max(old, 0.0f) : old);
    }
}

TEST(Add, IsExactForAllShapes) {
  for_every_target([] {
    for (const std::int64_t n : lengths) {
      Tensor a = normal({n}, 1), b = normal({n}, 2), y = Tensor::of<float>({n});
      add(any_context(), y.view<float>(), a.view<float>(), b.view<float>());
      for (std::size_t i = 0; i < y.span<float>().size(); ++i)
        ASSERT_EQ(y.span<float>()[i], a.span<float>()[i] + b.span<float>()[i]);
    }
    Tensor memory = normal({65, 40}, 3), b = normal({65, 33}, 4), before = memory.clone();
    const View<float> a = strided(memory, 65, 33, 7);
    add(any_context(), a, a, b.view<float>());
    for (std::int64_t i = 0; i < 65; ++i)
      for (std::int64_t j = 0; j < 40; ++j)
        ASSERT_EQ(memory.view<float>()(i, j),
                  j < 33 ? before.view<float>()(i, j) + b.view<float>()(i, j) : before.view<float>()(i, j));
  });
}

TEST(SetZero, WritesAllAndNothingElse) {
  for (const std::int64_t n : lengths) {
    Tensor x = normal({n + 1}, 1);
    const float last = x.span<float>().back();
    set_zero(any_context(), x.span<float>().first(static_cast<std::size_t>(n)));
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(x.view<float>()(i), 0.0f);
    EXPECT_EQ(x.span<float>().back(), last);
  }
}

TEST(Scale, IsExact) {
  for_every_target([] {
    for (const std::int64_t n : lengths) {
      Tensor x = normal({n}, 1), y = x.clone();
      scale(any_context(), y.span<float>(), 0.3f);
      for (std::size_t i = 0; i < y.span<float>().size(); ++i)
        ASSERT_EQ(y.span<float>()[i], x.span<float>()[i] * 0.3f);
    }
  });
}

TEST(SumOfSquares, IsAccurateAndIndependentOfThreads) {
  for_every_target([] {
    for (const std::int64_t n : lengths) {
      Tensor x = normal({n}, 1);
      double expected = 0;
      for (const float v : x.span<float>()) expected += static_cast<double>(v) * v;
      Context alone(1);
      const double one = sum_of_squares(alone, x.span<float>());
      EXPECT_NEAR(one, expected, 1e-12 * expected);
      Context context(3);
      EXPECT_EQ(sum_of_squares(context, x.span<float>()), one);
    }
  });
}

TEST(Dropout, FollowsTheGeneratorBitForBit) {
  const Random random(test_seed, Draw::dropout, 5);
  for (const float rate : {0.0f, 0.1f, 0.5f, 0.99f}) {
    for (const std::int64_t n : {0, 1, 3, 4, 63, 64, 65, 32771}) {
      for_every_target([&] {
        Tensor x = normal({n}, 1), y = x.clone();
        dropout(any_context(), y.view<float>(), y.view<float>(), rate, random);
        for (std::size_t i = 0; i < y.span<float>().size(); ++i) {
          const bool dropped = random.bits(i) < static_cast<double>(rate) * 0x1p32;
          ASSERT_EQ(y.span<float>()[i], dropped ? 0 : x.span<float>()[i] * (1 / (1 - rate)))
              << i << " of " << n;
        }
      });
    }
  }
}

TEST(Dropout, KeepsTheMean) {
  Tensor y = Tensor::of<float>({200, 500});
  for (float& v : y.span<float>()) v = 1;
  dropout(any_context(), y.view<float>(), y.view<float>(), 0.25f, Random(test_seed, Draw::dropout));
  double sum = 0;
  for (const float v : y.span<float>()) sum += v;
  EXPECT_NEAR(sum / 100000, 1, 0.01);
}

}  // namespace
}  // namespace linnet::kernels
