#include "kernels/dense.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <new>
#include <tuple>

#include "base/parallel.h"
#include "kernels/activation.h"
#include "kernels/narrow.h"
#include "kernels/panels.h"
#include "kernels/samples.h"
#include "kernels/targets.h"
#include "support/child.h"
#include "support/contexts.h"

namespace linnet::kernels {
namespace {

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::swiglu:
      return x / (1 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

std::vector<double> plain_product(View<const float> a, View<const float> b) {
  std::vector<double> c(static_cast<std::size_t>(a.extent(0) * b.extent(1)));
  for (std::int64_t i = 0; i < a.extent(0); ++i)
    for (std::int64_t k = 0; k < a.extent(1); ++k)
      for (std::int64_t j = 0; j < b.extent(1); ++j)
        c[static_cast<std::size_t>(i * b.extent(1) + j)] += static_cast<double>(a(i, k)) * b(k, j);
  return c;
}

std::vector<double> finished(std::vector<double> c, std::int64_t outputs, const Epilogue& epilogue) {
  for (std::size_t at = 0; at < c.size(); ++at) {
    const auto i = static_cast<std::int64_t>(at) / outputs, j = static_cast<std::int64_t>(at) % outputs;
    if (epilogue.bias.data() != nullptr) c[at] += *epilogue.bias.at(j);
    c[at] = activated(c[at], epilogue.activation);
    if (epilogue.residual.data() != nullptr) c[at] += epilogue.residual(i, j);
  }
  return c;
}

using Extents = std::tuple<std::int64_t, std::int64_t>;
constexpr Extents extents[] = {{1, 1},     {0, 5},     {30, 257},   {257, 30},  {64, 64},  {63, 65},
                               {256, 768}, {256, 256}, {1024, 256}, {513, 130}, {1100, 70}};

TEST(Multiply, MatchesDoublePrecision) {
  Context context(2);
  std::uint32_t stream = 0;
  for (const auto& [inputs, outputs] : extents) {
    Tensor b = normal({inputs, outputs}, ++stream), bias = normal({outputs}, ++stream);
    PackedMatrix packed(inputs, outputs);
    packed.pack(context, b.view<float>());
    for (const std::int64_t rows : {0, 1, 7, 64, 131}) {
      Tensor a = normal({rows, inputs}, ++stream), other = normal({rows, outputs}, ++stream);
      const auto product = plain_product(a.view<float>(), b.view<float>());
      for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu,
                                          Activation::gelu_tanh, Activation::swiglu}) {
        for (const int residual : {0, 1, 2}) {
          SCOPED_TRACE(testing::Message() << rows << " × " << inputs << " × " << outputs << ", activation "
                                          << static_cast<int>(activation) << ", residual " << residual);
          Tensor c = other.clone();
          Epilogue epilogue{bias.view<float>(), activation, {}};
          if (residual == 1) epilogue.residual = c.view<float>();
          if (residual == 2) epilogue.residual = other.view<float>();
          const auto expected = finished(product, outputs, epilogue);
          multiply(context, c.view<float>(), a.view<float>(), packed, epilogue);
          EXPECT_LT(relative_error(c.span<float>(), expected), 2e-6);
        }
      }
    }
  }
}

// What training keeps of an activation, and what goes back through it, against passes of their own.
TEST(Multiply, GivesTheSlopeOfTheActivationAndGoesBackThroughIt) {
  Context context(2);
  for (const WeightType type : {WeightType::f32, WeightType::bf16}) {
    for (const auto& [inputs, outputs] : extents) {
      if (inputs == 0) continue;
      Tensor w = normal({outputs, inputs}, 1), bias = normal({outputs}, 2);
      PackedMatrix packed(inputs, outputs, type);
      packed.pack_transposed(context, w.view<float>());
      for (const std::int64_t rows : {1, 7, 131}) {
        Tensor a = normal({rows, inputs}, 3), product = Tensor::of<float>({rows, outputs});
        multiply(context, product.view<float>(), a.view<float>(), packed, {.bias = bias.view<float>()});
        for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu,
                                            Activation::gelu_tanh, Activation::swiglu}) {
          SCOPED_TRACE(testing::Message() << rows << " × " << inputs << " × " << outputs << ", activation "
                                          << static_cast<int>(activation));
          Tensor c = Tensor::of<float>({rows, outputs}), slope = c.clone(), expected = c.clone(),
                 ones = c.clone();
          multiply(context, c.view<float>(), a.view<float>(), packed,
                   {.bias = bias.view<float>(), .activation = activation, .slope = slope.view<float>()});
          // After products with narrow weights GELU is near.
          const bool near = type == WeightType::bf16 && activation == Activation::gelu;
          const auto expect_equal = [&](const Tensor& found, float tolerance) {
            if (!near) {
              EXPECT_TRUE(same_bits(found.span<float>(), expected.span<float>()));
              return;
            }
            for (std::int64_t i = 0; i < found.size(); ++i)
              ASSERT_NEAR(found.span<float>()[i], expected.span<float>()[i], tolerance) << i;
          };
          activation_forward(context, expected.view<float>(), product.view<float>(), activation);
          expect_equal(c, 2e-6f);
          std::ranges::fill(ones.span<float>(), 1.0f);
          activation_backward(context, expected.view<float>(), ones.view<float>(), product.view<float>(),
                              activation);
          expect_equal(slope, 2e-5f);

          const Tensor factor = normal({rows, outputs}, 4);
          multiply(context, c.view<float>(), a.view<float>(), packed,
                   {.bias = bias.view<float>(), .factor = factor.view<float>()});
          for (std::size_t i = 0; i < c.span<float>().size(); ++i)
            expected.span<float>()[i] = product.span<float>()[i] * factor.span<float>()[i];
          EXPECT_TRUE(same_bits(c.span<float>(), expected.span<float>()));
        }
      }
    }
  }
}

TEST(Multiply, TransposedPackingIsTheSameMatrix) {
  for (const auto& [inputs, outputs] : extents) {
    Tensor w = normal({outputs, inputs}, 1), b = Tensor::of<float>({inputs, outputs});
    for (std::int64_t i = 0; i < inputs; ++i)
      for (std::int64_t j = 0; j < outputs; ++j) b.view<float>()(i, j) = w.view<float>()(j, i);
    Tensor a = normal({5, inputs}, 2), c = Tensor::of<float>({5, outputs}),
           d = Tensor::of<float>({5, outputs});
    PackedMatrix packed(inputs, outputs);
    packed.pack(any_context(), b.view<float>());
    multiply(any_context(), c.view<float>(), a.view<float>(), packed);
    packed.pack_transposed(any_context(), w.view<float>());
    multiply(any_context(), d.view<float>(), a.view<float>(), packed);
    EXPECT_TRUE(same_bits(c.span<float>(), d.span<float>()));
  }
}

// Every row, whatever the number of rows, the strides and the threads, equals the row computed alone.
void expect_rows_independent(std::int64_t inputs, std::int64_t outputs, Activation activation, int residual) {
  constexpr std::int64_t most = 270;
  Tensor a = normal({most, inputs}, 1), b = normal({inputs, outputs}, 2), bias = normal({outputs}, 3);
  Tensor before = normal({most, outputs}, 4);
  PackedMatrix packed(inputs, outputs);
  packed.pack(any_context(), b.view<float>());
  const auto epilogue_of = [&](View<float> c, View<const float> other) {
    Epilogue epilogue;
    if (activation != Activation::relu) epilogue.bias = bias.view<float>();
    epilogue.activation = activation;
    if (residual == 1) epilogue.residual = c;
    if (residual == 2) epilogue.residual = other;
    return epilogue;
  };
  Tensor alone = before.clone();
  for (std::int64_t i = 0; i < most; ++i) {
    const View<float> c = alone.view<float>().slice(0, i, i + 1);
    multiply(any_context(), c, a.view<float>().slice(0, i, i + 1), packed,
             epilogue_of(c, before.view<float>().slice(0, i, i + 1)));
  }
  const auto check = [&](Context& context, std::int64_t rows, std::int64_t first, std::int64_t gap) {
    SCOPED_TRACE(testing::Message() << rows << " rows from " << first << ", gap " << gap << ", " << inputs
                                    << " × " << outputs << ", activation " << static_cast<int>(activation)
                                    << ", residual " << residual);
    Tensor wide_a = Tensor::of<float>({rows, inputs + gap}),
           wide_c = Tensor::of<float>({rows, outputs + gap});
    const View<float> x = strided(wide_a, rows, inputs, gap), c = strided(wide_c, rows, outputs, gap);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(a.view<float>().at(first + i), inputs, x.at(i));
      std::copy_n(before.view<float>().at(first + i), outputs, c.at(i));
    }
    multiply(context, c, x, packed, epilogue_of(c, before.view<float>().slice(0, first, first + rows)));
    const auto expected = dense_copy(alone.view<float>().slice(0, first, first + rows));
    EXPECT_TRUE(same_bits(dense_copy(c), expected));
  };
  for (std::int64_t rows = 1; rows <= 40; ++rows) check(any_context(), rows, rows % 3, 0);
  for (const std::int64_t rows : {63, 64, 65, 100, 200, 256, 260}) {
    for (const int threads : {1, 2, 3, 8}) {
      Context context(threads);
      check(context, rows, 3, 0);
    }
    check(any_context(), rows, 1, 7);
  }
}

TEST(Multiply, RowsDoNotDependOnEachOther) {
  for (const auto& [inputs, outputs] : {Extents{256, 768}, Extents{1024, 256}, Extents{30, 257},
                                        Extents{257, 64}, Extents{64, 30}, Extents{1100, 70}})
    expect_rows_independent(inputs, outputs, Activation::none, 1);
  expect_rows_independent(257, 130, Activation::gelu, 0);
  expect_rows_independent(700, 64, Activation::gelu, 1);
  expect_rows_independent(64, 130, Activation::relu, 2);
  expect_rows_independent(64, 64, Activation::gelu_tanh, 2);
}

TEST(Multiply, PanelsMatchOnEveryTarget) {
  for (const auto& [inputs, outputs] : extents) {
    Tensor b = normal({inputs, outputs}, 1), bias = normal({outputs}, 2), a = normal({17, inputs}, 3);
    const PanelLayout layout{inputs, outputs};
    Tensor packed = Tensor::of<float>({layout.floats()});
    pack_panels(any_context(), packed.span<float>().data(), layout, b.span<float>().data(), outputs, 1);
    const Epilogue epilogue{bias.view<float>(), Activation::gelu, {}};
    const auto expected = finished(plain_product(a.view<float>(), b.view<float>()), outputs, epilogue);
    for_every_target([&, outputs = outputs] {  // clang 14 cannot capture the binding itself
      Tensor c = Tensor::of<float>({17, outputs});
      multiply_panels(c.view<float>(), a.view<float>(), packed.span<float>().data(), layout, 0,
                      layout.panels(), epilogue);
      EXPECT_LT(relative_error(c.span<float>(), expected), 2e-6);
      // Rows stay independent without AVX-512 as well.
      Tensor one = Tensor::of<float>({1, outputs});
      multiply_panels(one.view<float>(), a.view<float>().slice(0, 16, 17), packed.span<float>().data(),
                      layout, 0, layout.panels(), epilogue);
      EXPECT_TRUE(same_bits(one.span<float>(), dense_copy(c.view<float>().slice(0, 16, 17))));
    });
  }
}

TEST(Multiply, KeepsNaNInItsRow) {
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::swiglu}) {
    for (const std::int64_t rows : {3, 130}) {
      Tensor a = normal({rows, 65}, 1), b = normal({65, 70}, 2), c = Tensor::of<float>({rows, 70});
      a.view<float>()(2, 64) = std::numeric_limits<float>::quiet_NaN();
      PackedMatrix packed(65, 70);
      packed.pack(any_context(), b.view<float>());
      multiply(any_context(), c.view<float>(), a.view<float>(), packed, {{}, activation, {}});
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < 70; ++j)
          ASSERT_EQ(std::isnan(c.view<float>()(i, j)), i == 2) << i << ", " << j;
    }
  }
}

// Narrow layers take more rows at a time.
TEST(Multiply, ManyRowsHaveTheBitsOfFew) {
  constexpr std::int64_t rows = 8500;
  for (const auto& [inputs, outputs] : {Extents{64, 64}, Extents{16, 200}, Extents{65, 30}}) {
    Tensor a = normal({rows, inputs}, 1), b = normal({inputs, outputs}, 2), c = normal({rows, outputs}, 3);
    Tensor part = c.clone();
    PackedMatrix packed(inputs, outputs);
    packed.pack(any_context(), b.view<float>());
    multiply(any_context(), c.view<float>(), a.view<float>(), packed);
    for (std::int64_t begin = 0; begin < rows; begin += 1000) {
      const std::int64_t end = std::min(rows, begin + 1000);
      multiply(any_context(), part.view<float>().slice(0, begin, end), a.view<float>().slice(0, begin, end),
               packed);
    }
    EXPECT_TRUE(same_bits(c.span<float>(), part.span<float>()));
  }
}

TEST(Multiply, RunsInsideParallelFor) {
  Context context(2);
  Tensor a = normal({400, 256}, 1), b = normal({256, 256}, 2), c = Tensor::of<float>({400, 256});
  Tensor d = Tensor::of<float>({400, 256});
  PackedMatrix packed(256, 256);
  packed.pack(context, b.view<float>());
  multiply(context, c.view<float>(), a.view<float>(), packed);
  parallel_for(context, 4, [&](Context& own, std::int64_t i) {
    multiply(own, d.view<float>().slice(0, 100 * i, 100 * i + 100),
             a.view<float>().slice(0, 100 * i, 100 * i + 100), packed);
  });
  EXPECT_TRUE(same_bits(c.span<float>(), d.span<float>()));
}

TEST(Multiply, NoLackOfMemoryEndsTheProgram) {
  if (!children_work) GTEST_SKIP();
  for (std::size_t more = std::size_t{1} << 20; more < std::size_t{24} << 20; more += std::size_t{200} << 10)
    EXPECT_EQ(in_child([more] {
                const Tensor a = normal({300, 64}, 1), b = normal({64, 64}, 2);
                Tensor c = Tensor::of<float>({300, 64});
                Context own(1);
                if (!limit_addresses(more)) return false;
                try {
                  for (std::int64_t inputs = 1; inputs <= 64; ++inputs) {
                    PackedMatrix packed(inputs, 64);
                    packed.pack(own, b.view<float>().slice(0, 0, inputs));
                    for (std::int64_t rows = 1; rows <= 300; rows += 30)
                      multiply(own, c.view<float>().slice(0, 0, rows),
                               a.view<float>().slice(0, 0, rows).slice(1, 0, inputs), packed);
                  }
                } catch (const std::bad_alloc&) {
                }
                return true;
              }),
              0)
        << more << " bytes";
}

TEST(PackedMatrix, MovesAndRepacks) {
  Tensor a = normal({70, 64}, 1), b = normal({64, 64}, 2), c = Tensor::of<float>({70, 64});
  PackedMatrix first(64, 64);
  first.pack(any_context(), normal({64, 64}, 3).view<float>());
  PackedMatrix second = std::move(first);
  second.pack(any_context(), b.view<float>());
  multiply(any_context(), c.view<float>(), a.view<float>(), second);
  EXPECT_LT(relative_error(c.span<float>(), plain_product(a.view<float>(), b.view<float>())), 2e-6);
  EXPECT_EQ(second.bytes(), 64u * 64u * sizeof(float));
}

TEST(PackedMatrix, PanelsOfBothWaysAreThoseOfEach) {
  for (const auto& [outputs, inputs] : {Extents{1024, 512}, Extents{64, 8256}, Extents{832, 640}}) {
    for (const std::int64_t gap : {0, 4}) {
      Tensor memory = normal({outputs, inputs + gap}, 1);
      const View<const float> w = strided(memory, outputs, inputs, gap);
      ASSERT_TRUE(packs_both(w));
      const PanelLayout layouts[] = {{inputs, outputs}, {outputs, inputs}};
      Tensor transposed = Tensor::of<float>({layouts[0].floats()}), straight = transposed.clone();
      pack_panels(any_context(), transposed.span<float>().data(), layouts[0], w.data(), 1, w.stride(0));
      pack_panels(any_context(), straight.span<float>().data(), layouts[1], w.data(), w.stride(0), 1);
      for_every_target([&] {
        Tensor first = Tensor::of<float>({transposed.size()}), second = Tensor::of<float>({straight.size()});
        pack_both_panels(any_context(), first.span<float>().data(), second.span<float>().data(), w);
        EXPECT_TRUE(same_bits(first.span<float>(), transposed.span<float>()));
        EXPECT_TRUE(same_bits(second.span<float>(), straight.span<float>()));
      });
    }
  }
}

// Also of what is too small for that, has no whole blocks or no aligned rows, or is narrow.
TEST(PackedMatrix, PacksBothWaysAtOnce) {
  struct Case {
    std::int64_t outputs, inputs, gap;
    WeightType type = WeightType::f32;
  };
  for (const Case& c : {Case{1024, 512, 0}, Case{1024, 512, 3}, Case{1000, 600, 0}, Case{70, 64, 0},
                        Case{1024, 512, 0, WeightType::bf16}}) {
    SCOPED_TRACE(testing::Message() << c.outputs << " × " << c.inputs << ", gap " << c.gap);
    Tensor memory = normal({c.outputs, c.inputs + c.gap}, 1);
    const View<const float> w = strided(memory, c.outputs, c.inputs, c.gap);
    PackedMatrix transposed(c.inputs, c.outputs, c.type), straight(c.outputs, c.inputs, c.type);
    PackedMatrix expected_transposed(c.inputs, c.outputs, c.type),
        expected_straight(c.outputs, c.inputs, c.type);
    PackedMatrix::pack_both(any_context(), transposed, straight, w);
    expected_transposed.pack_transposed(any_context(), w);
    expected_straight.pack(any_context(), w);
    const auto expect_same = [&](const PackedMatrix& actual, const PackedMatrix& expected) {
      Tensor a = normal({7, actual.inputs()}, 2), y = Tensor::of<float>({7, actual.outputs()}), z = y.clone();
      multiply(any_context(), y.view<float>(), a.view<float>(), actual);
      multiply(any_context(), z.view<float>(), a.view<float>(), expected);
      EXPECT_TRUE(same_bits(y.span<float>(), z.span<float>()));
    };
    expect_same(transposed, expected_transposed);
    expect_same(straight, expected_straight);
  }
}

struct Gradient {
  std::vector<float> dw, db;
};

Gradient gradient_of(Context& context, std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
                     std::int64_t gap) {
  Tensor dy_memory = normal({rows, outputs + gap}, 1), x_memory = normal({rows, inputs + gap}, 2);
  Tensor dw_memory = normal({outputs, inputs + gap}, 3), db = normal({outputs}, 4);
  const View<float> dw = strided(dw_memory, outputs, inputs, gap);
  accumulate_weight_gradient(context, dw, db.view<float>(), strided(dy_memory, rows, outputs, gap),
                             strided(x_memory, rows, inputs, gap));
  return {dense_copy(dw), {db.span<float>().begin(), db.span<float>().end()}};
}

void expect_gradient_right(std::int64_t rows, std::int64_t outputs, std::int64_t inputs, std::int64_t gap) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << outputs << " × " << inputs << ", gap " << gap);
  Tensor dy_memory = normal({rows, outputs + gap}, 1), x_memory = normal({rows, inputs + gap}, 2);
  Tensor dw_memory = normal({outputs, inputs + gap}, 3), db = normal({outputs}, 4);
  const View<float> dy = strided(dy_memory, rows, outputs, gap), x = strided(x_memory, rows, inputs, gap);
  const View<float> dw = strided(dw_memory, outputs, inputs, gap);
  std::vector<double> expected_dw, expected_db;
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t i = 0; i < inputs; ++i) {
      double sum = dw(o, i);
      for (std::int64_t r = 0; r < rows; ++r) sum += static_cast<double>(dy(r, o)) * x(r, i);
      expected_dw.push_back(sum);
    }
    double sum = *db.view<float>().at(o);
    for (std::int64_t r = 0; r < rows; ++r) sum += dy(r, o);
    expected_db.push_back(sum);
  }
  const Gradient actual = gradient_of(any_context(), rows, outputs, inputs, gap);
  EXPECT_LT(relative_error(actual.dw, expected_dw), 2e-6);
  EXPECT_LT(relative_error(actual.db, expected_db), 2e-6);
}

TEST(WeightGradient, MatchesDoublePrecision) {
  for (const std::int64_t rows : {0, 1, 63, 65, 600})
    for (const auto& [outputs, inputs] :
         {Extents{1, 1}, Extents{30, 257}, Extents{257, 64}, Extents{130, 300}})
      for (const std::int64_t gap : {0, 3}) expect_gradient_right(rows, outputs, inputs, gap);
  for_every_target([] { expect_gradient_right(70, 37, 70, 0); });
}

// Of so many rows a small gradient is summed by parts.
TEST(WeightGradient, MatchesDoublePrecisionByParts) {
  for (const std::int64_t rows : {2048, 2500})
    for (const auto& [outputs, inputs] : {Extents{30, 65}, Extents{70, 64}})
      for (const std::int64_t gap : {0, 3}) expect_gradient_right(rows, outputs, inputs, gap);
  expect_gradient_right(40000, 20, 10, 0);
  for_every_target([] { expect_gradient_right(2048, 7, 70, 0); });
}

TEST(WeightGradient, DoesNotDependOnThreads) {
  for (const std::int64_t rows : {700, 3000}) {
    for (const auto& [outputs, inputs] : {Extents{768, 256}, Extents{30, 256}, Extents{97, 513}}) {
      Context alone(1);
      const Gradient one = gradient_of(alone, rows, outputs, inputs, 0);
      for (const int threads : {2, 3, 8}) {
        Context context(threads);
        const Gradient more = gradient_of(context, rows, outputs, inputs, 0);
        EXPECT_TRUE(same_bits(one.dw, more.dw));
        EXPECT_TRUE(same_bits(one.db, more.db));
      }
    }
  }
}

TEST(WeightGradient, IsTheSameWithoutABias) {
  for (const std::int64_t rows : {9, 2100}) {
    Tensor dy = normal({rows, 5}, 1), x = normal({rows, 4}, 2), db = Tensor::of<float>({5});
    Tensor with_bias = Tensor::of<float>({5, 4}), alone = Tensor::of<float>({5, 4});
    accumulate_weight_gradient(any_context(), with_bias.view<float>(), db.view<float>(), dy.view<float>(),
                               x.view<float>());
    accumulate_weight_gradient(any_context(), alone.view<float>(), {}, dy.view<float>(), x.view<float>());
    EXPECT_TRUE(same_bits(alone.span<float>(), with_bias.span<float>()));
    double expected = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      expected += static_cast<double>(dy.view<float>()(row, 0)) * x.view<float>()(row, 0);
    EXPECT_NEAR(alone.span<float>()[0], expected, 1e-5 * std::sqrt(static_cast<double>(rows)));
  }
}

TEST(WeightGradient, OfNoRowsAddsNothing) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor dy(type, {0, 300}), x(type, {0, 200});
    Tensor dw = normal({300, 200}, 1), db = normal({300}, 2), same = dw.clone(), same_db = db.clone();
    const auto rows_of = [&](const Tensor& rows) {
      return type == DType::f32 ? ConstFloatView(rows.view<float>()) : ConstFloatView(rows.view<bf16>());
    };
    accumulate_weight_gradient(any_context(), dw.view<float>(), db.view<float>(), rows_of(dy), rows_of(x),
                               WeightType::bf16);
    EXPECT_TRUE(same_bits(dw.span<float>(), same.span<float>()));
    EXPECT_TRUE(same_bits(db.span<float>(), same_db.span<float>()));
  }
}

/// dw += dyᵀ x in bf16 with its error against the product of the rounded numbers, or of the numbers where
/// nothing is rounded.
struct Bf16Gradient {
  Tensor dw;
  double error = 0;
};

Bf16Gradient bf16_gradient_of(Context& context, std::int64_t rows, std::int64_t outputs,
                              std::int64_t inputs) {
  const Tensor dy = normal({rows, outputs}, 1), x = normal({rows, inputs}, 2);
  Bf16Gradient result{normal({outputs, inputs}, 3)};
  const bool rounds = rounds_factors(rows, outputs, inputs);
  const auto rounded = [&](float value) {
    return static_cast<double>(rounds ? to_float(to_bf16(value)) : value);
  };
  std::vector<double> expected;
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t i = 0; i < inputs; ++i) {
      double sum = result.dw.view<float>()(o, i);
      for (std::int64_t r = 0; r < rows; ++r)
        sum += rounded(dy.view<float>()(r, o)) * rounded(x.view<float>()(r, i));
      expected.push_back(sum);
    }
  }
  accumulate_weight_gradient(context, result.dw.view<float>(), {}, dy.view<float>(), x.view<float>(),
                             WeightType::bf16);
  result.error = relative_error(result.dw.span<float>(), expected);
  return result;
}

TEST(WeightGradient, InBf16IsTheProductOfTheRoundedNumbers) {
  for (const std::int64_t rows : {1, 64, 65, 1100, 2049})
    for (const auto& [outputs, inputs] : {Extents{1, 1}, Extents{30, 70}, Extents{257, 64}, Extents{70, 130},
                                          Extents{257, 130}, Extents{70, 600}}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << outputs << " x " << inputs);
      EXPECT_LT(bf16_gradient_of(any_context(), rows, outputs, inputs).error, 1e-5);
    }
  for_every_target([] {
    EXPECT_LT(bf16_gradient_of(any_context(), 131, 37, 70).error, 1e-5);
    EXPECT_LT(bf16_gradient_of(any_context(), 131, 37, 970).error, 1e-5);
  });
}

TEST(WeightGradient, InBf16DoesNotDependOnThreads) {
  for (const auto& [outputs, inputs] :
       {Extents{260, 96}, Extents{30, 256}, Extents{97, 130}, Extents{260, 160}, Extents{97, 400}}) {
    Context alone(1);
    const Tensor one = bf16_gradient_of(alone, 1500, outputs, inputs).dw;
    for (const int threads : {2, 3, 8}) {
      Context context(threads);
      const Tensor more = bf16_gradient_of(context, 1500, outputs, inputs).dw;
      EXPECT_TRUE(same_bits(one.span<float>(), more.span<float>()));
    }
  }
}

TEST(WeightGradient, FactorsMayBeBf16) {
  if (!multiplies_groups(WeightType::bf16)) GTEST_SKIP() << "no products of bf16 on this machine";
  for (const std::int64_t rows : {1, 2, 64, 65, 1100, 2049})
    for (const auto& [outputs, inputs] : {Extents{256, 130}, Extents{70, 600}, Extents{515, 64}}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << outputs << " x " << inputs);
      ASSERT_TRUE(reads_rounded(WeightType::bf16, outputs, inputs));
      const Tensor dy = rounded(normal({rows, outputs}, 1)), x = rounded(normal({rows, inputs}, 2));
      const Tensor wide_dy = widened(dy), wide_x = widened(x);
      const Tensor dw = normal({outputs, inputs}, 3), db = normal({outputs}, 4);
      const auto gradient = [&](ConstFloatView from, ConstFloatView to) {
        Tensor weights = dw.clone(), biases = db.clone();
        accumulate_weight_gradient(any_context(), weights.view<float>(), biases.view<float>(), from, to,
                                   WeightType::bf16);
        return std::pair(std::move(weights), std::move(biases));
      };
      const auto expected = gradient(dy.view<bf16>(), x.view<bf16>());
      for (const auto& [from, to] :
           {std::pair<ConstFloatView, ConstFloatView>{dy.view<bf16>(), wide_x.view<float>()},
            {wide_dy.view<float>(), x.view<bf16>()}}) {
        const auto [weights, biases] = gradient(from, to);
        EXPECT_TRUE(same_bits(weights.span<float>(), expected.first.span<float>()));
        EXPECT_TRUE(same_bits(biases.span<float>(), expected.second.span<float>()));
      }
      if (!rounds_factors(rows, outputs, inputs)) continue;
      const auto wide = gradient(wide_dy.view<float>(), wide_x.view<float>());
      EXPECT_TRUE(same_bits(wide.first.span<float>(), expected.first.span<float>()));
      EXPECT_TRUE(same_bits(wide.second.span<float>(), expected.second.span<float>()));
    }
}

TEST(WeightGradient, OfManyNumbersIsRoundedWhereBf16IsFast) {
  EXPECT_EQ(rounds_factors(64, 256, 256), multiplies_groups(WeightType::bf16));
  EXPECT_FALSE(rounds_factors(63, 256, 256));
}

TEST(WeightGradient, InBf16KeepsNotANumber) {
  for (const std::int64_t inputs : {40, 1100}) {
    const Tensor x = normal({200, inputs}, 2);
    Tensor dy = normal({200, 33}, 1), dw = normal({33, inputs}, 3);
    dy.view<float>()(77, 5) = std::numeric_limits<float>::quiet_NaN();
    accumulate_weight_gradient(any_context(), dw.view<float>(), {}, dy.view<float>(), x.view<float>(),
                               WeightType::bf16);
    for (std::int64_t o = 0; o < 33; ++o)
      for (std::int64_t i = 0; i < inputs; ++i) EXPECT_EQ(std::isnan(dw.view<float>()(o, i)), o == 5);
  }
}

/// GFLOPS of `plain_product`.
double plain_gflops() {
  constexpr std::int64_t size = 128;
  const Tensor a = normal({size, size}, 1), b = normal({size, size}, 2);
  const auto start = std::chrono::steady_clock::now();
  plain_product(a.view<float>(), b.view<float>());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return 2e-9 * size * size * size / seconds;
}

// The ceiling of products lies between a plain loop and the most that hardware can do: 2 threads with 2 fused
// multiply-adds of 16 lanes a cycle at 10 GHz. Memory copies between 0.1 GB/s and 4 TB/s on any machine. A
// wrong unit or a wrong count of work is a factor of 1,000 or more.
TEST(Ceilings, LieBetweenAPlainLoopAndTheHardware) {
  Context context(2);
  const double gflops = measure_gemm_gflops(context), gbs = measure_copy_gbs(context);
  EXPECT_GT(gflops, plain_gflops());
  EXPECT_LT(gflops, 2.0 * 2 * 2 * 16 * 10);
  EXPECT_GT(gbs, 0.1);
  EXPECT_LT(gbs, 4000);
}

}  // namespace
}  // namespace linnet::kernels
