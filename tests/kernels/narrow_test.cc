// Products with weights of bf16 and of int8.
#include "kernels/narrow.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dense.h"
#include "kernels/narrow_matrix.h"
#include "kernels/panels.h"
#include "kernels/samples.h"
#include "kernels/targets.h"
#include "linnet/error.h"
#include "support/contexts.h"

namespace linnet::kernels {
namespace {

constexpr std::pair<std::int64_t, std::int64_t> extents[] = {
    {1, 1}, {5, 3}, {30, 257}, {257, 30}, {64, 64}, {63, 65}, {256, 768}, {1024, 256}, {513, 130}};

/// What a row becomes before it is multiplied, in double precision.
std::vector<double> rounded_row(const float* row, std::int64_t count, WeightType type) {
  std::vector<double> rounded(row, row + count);
  float largest = 0;
  for (std::int64_t k = 0; k < count; ++k) largest = std::max(largest, std::abs(row[k]));
  for (double& x : rounded) {
    if (type == WeightType::bf16) x = to_float(to_bf16(static_cast<float>(x)));
    if (type == WeightType::int8 && largest > 0)
      x = std::nearbyint(static_cast<float>(x) * (127.0f / largest)) * (largest / 127.0);
  }
  return rounded;
}

/// a · wᵀ with both rounded as `type` says; rows stay as they are where there are no products of bf16.
std::vector<double> expected_product(View<const float> a, Tensor weights, WeightType type) {
  const std::int64_t outputs = weights.shape()[0], inputs = weights.shape()[1];
  round_weights(weights.view<float>(), type);
  const View<const float> w = std::as_const(weights).view<float>();
  const bool rounded = type == WeightType::int8 || multiplies_groups(type);
  std::vector<double> c;
  for (std::int64_t i = 0; i < a.extent(0); ++i) {
    const std::vector<double> row = rounded_row(a.at(i), inputs, rounded ? type : WeightType::f32);
    for (std::int64_t n = 0; n < outputs; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < inputs; ++k) sum += row[static_cast<std::size_t>(k)] * w(n, k);
      c.push_back(sum);
    }
  }
  return c;
}

double error(View<const float> c, const std::vector<double>& expected) {
  double difference = 0, norm = 1e-30;
  for (std::int64_t i = 0; i < c.extent(0); ++i)
    for (std::int64_t n = 0; n < c.extent(1); ++n) {
      const double e = expected[static_cast<std::size_t>(i * c.extent(1) + n)];
      difference += (c(i, n) - e) * (c(i, n) - e);
      norm += e * e;
    }
  return std::sqrt(difference / norm);
}

TEST(NarrowMultiply, IsTheProductOfTheRoundedNumbers) {
  Context context(2);
  std::uint32_t stream = 0;
  for (const WeightType type : {WeightType::bf16, WeightType::int8}) {
    for (const auto& [inputs, outputs] : extents) {
      Tensor w = normal({outputs, inputs}, ++stream);
      PackedMatrix packed(inputs, outputs, type);
      packed.pack_transposed(context, w.view<float>());
      for (const std::int64_t rows : {0, 1, 2, 7, 31, 64, 131}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << inputs << " x " << outputs);
        Tensor a = normal({rows, inputs}, ++stream), c = normal({rows, outputs}, ++stream);
        multiply(context, c.view<float>(), a.view<float>(), packed);
        EXPECT_LT(error(c.view<float>(), expected_product(a.view<float>(), w.clone(), type)), 2e-6);
      }
    }
  }
}

TEST(NarrowMultiply, BiasActivationAndResidualFollow) {
  for (const WeightType type : {WeightType::bf16, WeightType::int8}) {
    Tensor w = normal({70, 40}, 1), a = normal({5, 40}, 2), bias = normal({70}, 3),
           residual = normal({5, 70}, 4);
    PackedMatrix packed(40, 70, type);
    packed.pack_transposed(any_context(), w.view<float>());
    std::vector<double> expected = expected_product(a.view<float>(), w.clone(), type);
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t n = 0; n < 70; ++n) {
        double& x = expected[static_cast<std::size_t>(i * 70 + n)];
        x = std::max(0.0, x + bias.view<float>()(n)) + residual.view<float>()(i, n);
      }
    // In place, with room between the rows.
    Tensor wide = normal({5, 80}, 5);
    const View<float> c = wide.view<float>().slice(1, 3, 73);
    for (std::int64_t i = 0; i < 5; ++i) std::copy_n(residual.view<float>().at(i), 70, c.at(i));
    multiply(any_context(), c, a.view<float>(), packed, {bias.view<float>(), Activation::relu, c});
    EXPECT_LT(error(c, expected), 2e-6);
  }
}

TEST(NarrowMultiply, BothWaysToPackGiveTheSameBits) {
  for (const auto& [inputs, outputs] : extents) {
    SCOPED_TRACE(testing::Message() << inputs << " x " << outputs);
    Tensor w = normal({outputs, inputs}, 1), b = Tensor::of<float>({inputs, outputs});
    for (std::int64_t k = 0; k < inputs; ++k)
      for (std::int64_t n = 0; n < outputs; ++n) b.view<float>()(k, n) = w.view<float>()(n, k);
    PackedMatrix one(inputs, outputs, WeightType::bf16), other(inputs, outputs, WeightType::bf16);
    one.pack_transposed(any_context(), w.view<float>());
    other.pack(any_context(), b.view<float>());
    Tensor rounded = w.clone(), held = Tensor::of<float>({outputs, inputs});
    round_weights(rounded.view<float>(), WeightType::bf16);
    for (const PackedMatrix* packed : {&one, &other}) {
      packed->unpack_transposed(held.view<float>());
      EXPECT_TRUE(same_bits(held.span<float>(), rounded.span<float>()));
    }
  }
}

TEST(NarrowMultiply, PairsOfBf16GiveTheBitsOfTheSameWeightsInF32) {
  for (const auto& [inputs, outputs] : extents) {
    SCOPED_TRACE(testing::Message() << inputs << " x " << outputs);
    Tensor w = normal({outputs, inputs}, 1);
    round_weights(w.view<float>(), WeightType::bf16);
    const PanelLayout layout{inputs, outputs};
    Tensor panels = Tensor::of<float>({layout.floats()});
    pack_panels(any_context(), panels.span<float>().data(), layout, w.span<float>().data(), 1, inputs);
    NarrowMatrix pairs({WeightType::bf16, inputs, outputs});
    pairs.pack_transposed(any_context(), w.view<float>());
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 13}) {
      Tensor a = normal({rows, inputs}, 2), one = normal({rows, outputs}, 3),
             other = normal({rows, outputs}, 4);
      multiply_panels(one.view<float>(), a.view<float>(), panels.span<float>().data(), layout, 0,
                      layout.panels(), {});
      multiply_panels(other.view<float>(), a.view<float>(), pairs.pairs(), layout, 0, layout.panels(), {});
      EXPECT_TRUE(same_bits(one.span<float>(), other.span<float>())) << rows;
    }
  }
}

TEST(NarrowMultiply, IntegerRowsDoNotDependOnTheirCompany) {
  Tensor w = normal({130, 257}, 1), a = normal({131, 257}, 2);
  PackedMatrix packed(257, 130, WeightType::int8);
  packed.pack_transposed(any_context(), w.view<float>());
  Tensor all = Tensor::of<float>({131, 130}), one = Tensor::of<float>({1, 130});
  multiply(any_context(), all.view<float>(), a.view<float>(), packed);
  for (const int threads : {1, 2, 3}) {
    Context context(threads);
    for (const std::int64_t i : {0, 1, 63, 64, 130}) {
      multiply(context, one.view<float>(), a.view<float>().slice(0, i, i + 1), packed);
      for (std::int64_t n = 0; n < 130; ++n) ASSERT_EQ(one.view<float>()(0, n), all.view<float>()(i, n));
    }
  }
}

// The product of these two numbers, rounded to a float first, would be rounded to another code.
TEST(NarrowMultiply, ACodeDoesNotDependOnItsPlaceInTheRow) {
  constexpr std::int64_t inputs = 24;
  Tensor w = Tensor::of<float>({2, inputs}), a = Tensor::of<float>({1, inputs}),
         c = Tensor::of<float>({1, 2});
  w.view<float>()(0, 3) = w.view<float>()(1, 20) = 1;
  a.view<float>()(0, 0) = 1;
  a.view<float>()(0, 3) = a.view<float>()(0, 20) = 12681990 * 0x1p-30f;
  PackedMatrix packed(inputs, 2, WeightType::int8);
  packed.pack_transposed(any_context(), w.view<float>());
  multiply(any_context(), c.view<float>(), a.view<float>(), packed);
  EXPECT_EQ(c.view<float>()(0, 0), c.view<float>()(0, 1));
}

TEST(NarrowMultiply, RowsWhoseLargestNumberHasNoInverseAreZeros) {
  Tensor w = normal({33, 20}, 1), a = Tensor::of<float>({1, 20}), c = Tensor::of<float>({1, 33});
  std::ranges::fill(a.span<float>(), 1e-38f);
  PackedMatrix packed(20, 33, WeightType::int8);
  packed.pack_transposed(any_context(), w.view<float>());
  multiply(any_context(), c.view<float>(), a.view<float>(), packed);
  for (const float number : c.span<float>()) EXPECT_EQ(number, 0);
}

// Codes are multiplied with 128 more than they stand for, so that sums wrap around.
TEST(NarrowMultiply, LongSumsOfLargeCodesAreExact) {
  constexpr std::int64_t inputs = 100'000;
  Tensor w = Tensor::of<float>({65, inputs}), a = Tensor::of<float>({5, inputs}),
         c = Tensor::of<float>({5, 65});
  std::ranges::fill(w.span<float>(), 1.0f);
  std::ranges::fill(a.span<float>(), 1.0f);
  PackedMatrix packed(inputs, 65, WeightType::int8);
  packed.pack_transposed(any_context(), w.view<float>());
  multiply(any_context(), c.view<float>(), a.view<float>(), packed);
  for (const float number : c.span<float>()) EXPECT_NEAR(number, inputs, 1e-6 * inputs);
}

TEST(NarrowMultiply, SmallRowsAndZerosKeepTheirScale) {
  for (const float scale : {0.0f, 1e-30f, 1e30f}) {
    Tensor w = normal({33, 20}, 1), a = normal({3, 20}, 2);
    for (float& x : a.span<float>()) x *= scale;
    PackedMatrix packed(20, 33, WeightType::int8);
    packed.pack_transposed(any_context(), w.view<float>());
    Tensor c = Tensor::of<float>({3, 33});
    multiply(any_context(), c.view<float>(), a.view<float>(), packed);
    EXPECT_LT(error(c.view<float>(), expected_product(a.view<float>(), w.clone(), WeightType::int8)), 2e-6)
        << scale;
  }
}

TEST(NarrowMultiply, NotANumberStaysOneInItsRow) {
  for (const WeightType type : {WeightType::bf16, WeightType::int8}) {
    Tensor w = normal({33, 40}, 1), a = normal({3, 40}, 2), c = Tensor::of<float>({3, 33});
    a.view<float>()(1, 17) = NAN;
    PackedMatrix packed(40, 33, type);
    packed.pack_transposed(any_context(), w.view<float>());
    multiply(any_context(), c.view<float>(), a.view<float>(), packed);
    for (std::int64_t n = 0; n < 33; ++n) {
      EXPECT_TRUE(std::isnan(c.view<float>()(1, n)));
      EXPECT_TRUE(std::isfinite(c.view<float>()(0, n)) && std::isfinite(c.view<float>()(2, n)));
    }
  }
}

TEST(NarrowMultiply, RowsMayBeBf16BeforeAndAfter) {
  if (!multiplies_groups(WeightType::bf16)) GTEST_SKIP() << "no products of bf16 on this machine";
  for (const auto& [inputs, outputs] :
       {std::pair<std::int64_t, std::int64_t>{256, 768}, {1024, 256}, {513, 130}, {130, 515}}) {
    ASSERT_TRUE(reads_rounded(WeightType::bf16, outputs, inputs));
    const Tensor w = normal({outputs, inputs}, 1), bias = normal({outputs}, 2);
    PackedMatrix packed(inputs, outputs, WeightType::bf16);
    packed.pack_transposed(any_context(), w.view<float>());
    for (const std::int64_t rows : {1, 5, 63, 64, 65, 131}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << inputs << " to " << outputs);
      const Tensor a = normal({rows, inputs}, 3), factor = rounded(normal({rows, outputs}, 4)),
                   residual = normal({rows, outputs}, 5);
      Tensor wide = Tensor::of<float>({rows, outputs}), wide_slope = wide.clone();
      Tensor half = Tensor::of<bf16>({rows, outputs}), half_slope = half.clone();
      multiply(any_context(), wide.view<float>(), a.view<float>(), packed,
               {bias.view<float>(), Activation::gelu, residual.view<float>(), wide_slope.view<float>(),
                widened(factor).view<float>()});
      multiply(any_context(), half.view<bf16>(), rounded(a).view<bf16>(), packed,
               {bias.view<float>(), Activation::gelu, residual.view<float>(), half_slope.view<bf16>(),
                factor.view<bf16>()});
      EXPECT_TRUE(same_bits(widened(rounded(wide)).span<float>(), widened(half).span<float>()));
      EXPECT_TRUE(same_bits(widened(rounded(wide_slope)).span<float>(), widened(half_slope).span<float>()));
    }
  }
}

TEST(NarrowMultiply, TwiceIsOneAfterTheOther) {
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::int8}) {
    Tensor w1 = normal({257, 30}, 1), w2 = normal({33, 257}, 2), bias = normal({257}, 3);
    PackedMatrix first(30, 257, type), second(257, 33, type);
    first.pack_transposed(any_context(), w1.view<float>());
    second.pack_transposed(any_context(), w2.view<float>());
    for (const std::int64_t rows : {0, 1, 64, 65, 131}) {
      Tensor a = normal({rows, 30}, 4), residual = normal({rows, 33}, 5);
      Tensor hidden = Tensor::of<float>({rows, 257}), expected = Tensor::of<float>({rows, 33});
      const Epilogue between{bias.view<float>(), Activation::gelu, {}};
      multiply(any_context(), hidden.view<float>(), a.view<float>(), first, between);
      multiply(any_context(), expected.view<float>(), hidden.view<float>(), second,
               {{}, Activation::none, residual.view<float>()});
      std::vector<double> numbers;
      for (const float x : expected.span<float>()) numbers.push_back(x);
      for (const int threads : {1, 2}) {
        Context context(threads);
        Tensor c = residual.clone();  // in place
        multiply_twice(context, c.view<float>(), a.view<float>(), first, between, second,
                       {{}, Activation::none, c.view<float>()}, hidden.view<float>());
        EXPECT_LE(error(c.view<float>(), numbers), type == WeightType::bf16 ? 1e-4 : 0) << rows;
      }
    }
  }
}

TEST(NarrowMultiply, TwiceGivesTheSlopeBetween) {
  for (const WeightType type : {WeightType::bf16, WeightType::int8}) {
    Tensor w1 = normal({70, 30}, 1), w2 = normal({33, 70}, 2), a = normal({131, 30}, 3);
    PackedMatrix first(30, 70, type), second(70, 33, type);
    first.pack_transposed(any_context(), w1.view<float>());
    second.pack_transposed(any_context(), w2.view<float>());
    Tensor hidden = Tensor::of<float>({131, 70}), slope = hidden.clone(), expected = hidden.clone();
    Tensor c = Tensor::of<float>({131, 33});
    const auto between = [](Tensor& to) {
      return Epilogue{.activation = Activation::gelu, .slope = to.view<float>()};
    };
    multiply(any_context(), hidden.view<float>(), a.view<float>(), first, between(expected));
    multiply_twice(any_context(), c.view<float>(), a.view<float>(), first, between(slope), second, {},
                   hidden.view<float>());
    std::vector<double> numbers;
    for (const float x : expected.span<float>()) numbers.push_back(x);
    EXPECT_LE(error(slope.view<float>(), numbers), type == WeightType::bf16 ? 1e-4 : 0);
  }
}

TEST(NarrowMultiply, RefusesSumsOfCodesThatNoIntegerHolds) {
  EXPECT_NO_THROW(PackedMatrix(132104, 1, WeightType::int8));
  EXPECT_THROW(PackedMatrix(132105, 1, WeightType::int8), UsageError);
}

TEST(NarrowMultiply, GeluIsNear) {
  for (const WeightType type : {WeightType::bf16, WeightType::int8}) {
    Tensor w = normal({70, 40}, 1), a = normal({9, 40}, 2), c = Tensor::of<float>({9, 70});
    PackedMatrix packed(40, 70, type);
    packed.pack_transposed(any_context(), w.view<float>());
    std::vector<double> expected = expected_product(a.view<float>(), w.clone(), type);
    for (double& x : expected) x *= 0.5 * std::erfc(-x / std::sqrt(2.0));
    multiply(any_context(), c.view<float>(), a.view<float>(), packed, {{}, Activation::gelu, {}});
    EXPECT_LT(error(c.view<float>(), expected), 1e-5);
  }
}

TEST(RoundWeights, OfInt8AreTheNearestMultiplesOfAScale) {
  for (const std::int64_t count : {1, 3, 15, 16, 17, 63, 64, 65, 1000}) {
    for (const float size : {1.0f, 1e-30f, 1e-40f, 2e-43f, 1e37f, 0.0f}) {  // subnormal scales too
      SCOPED_TRACE(testing::Message() << count << " weights of about " << size);
      Tensor w = normal({1, count}, static_cast<std::uint64_t>(count));
      for (float& x : w.span<float>()) x *= size;
      if (count > 3) w.span<float>()[3] = w.span<float>()[0] / 2;
      float largest = 0;
      for (const float x : w.span<float>()) largest = std::max(largest, std::abs(x));
      const float scale = largest / 127;
      std::vector<std::int8_t> codes(static_cast<std::size_t>(count), 99);
      EXPECT_EQ(quantise_weights(codes, w.span<float>()), scale);
      Tensor rounded = w.clone();
      round_weights(rounded.view<float>(), WeightType::int8);
      for (std::size_t k = 0; k < codes.size(); ++k) {
        const long code = scale > 0 ? std::clamp(std::lrint(w.span<float>()[k] / scale), -127l, 127l) : 0;
        ASSERT_EQ(codes[k], code) << k;
        ASSERT_EQ(rounded.span<float>()[k], scale * static_cast<float>(code)) << k;
        ASSERT_EQ(std::signbit(rounded.span<float>()[k]), code < 0) << k;
      }
    }
  }
}

TEST(RoundWeights, IsIdempotentAndNear) {
  for (const WeightType type : {WeightType::bf16, WeightType::int8}) {
    SCOPED_TRACE(type == WeightType::bf16 ? "bf16" : "int8");
    Tensor w = normal({9, 100}, 1);
    w.view<float>()(3, 7) = 0;
    for (float& x : std::span(w.view<float>().at(5), 100)) x = 0;
    Tensor once = w.clone();
    round_weights(once.view<float>(), type);
    Tensor twice = once.clone();
    round_weights(twice.view<float>(), type);
    for (std::int64_t n = 0; n < 9; ++n) {
      double largest = 0;
      for (const float x : std::span(w.view<float>().at(n), 100))
        largest = std::max<double>(largest, std::abs(x));
      for (std::int64_t k = 0; k < 100; ++k) {
        const double before = w.view<float>()(n, k), after = once.view<float>()(n, k);
        EXPECT_EQ(after, twice.view<float>()(n, k));
        // Half a step: numbers have eight bits, and the largest of a row is 127 steps. Quotients and products
        // of codes round too, by 127 · 2⁻²³ of a step at most.
        EXPECT_LE(std::abs(after - before),
                  type == WeightType::bf16 ? std::abs(before) / 256 : 1.0001 * largest / 254);
      }
    }
  }
}

}  // namespace
}  // namespace linnet::kernels
