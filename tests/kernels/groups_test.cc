// Products of narrow rows by the instructions that multiply groups, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/dense.h"
#include "kernels/narrow.h"
#include "kernels/pairs.h"
#include "kernels/samples.h"

namespace linnet::kernels {
namespace {

constexpr std::int64_t inner_sizes[] = {1, 2, 3, 4, 5, 63, 64, 257, 1030};
constexpr std::int64_t outer_sizes[] = {1, 63, 64, 65, 130};
constexpr std::int64_t row_counts[] = {1, 2, 3, 4, 5, 6, 7, 13};
/// For matrix units, whose tiles hold 16 rows.
constexpr std::int64_t more_row_counts[] = {15, 16, 17, 31, 32, 33, 47, 64};

/// Rows and panels of a product, and the numbers that they stand for.
struct Factors {
  Factors(WeightType type, std::int64_t count, std::int64_t inputs, std::int64_t outputs, bool units = false)
      : layout{type, inputs, outputs},
        rows(static_cast<std::size_t>(count * inputs * layout.element())),
        panels(static_cast<std::size_t>(layout.bytes())),
        scales(static_cast<std::size_t>(count), 1.0f),
        product{layout, {type, rows.data(), scales.data()}, count, panels.data(), outputs, false, units} {
    const Tensor a = normal({count, inputs}, 1, 40), b = normal({inputs, outputs}, 2, 40);
    for (std::int64_t i = 0; i < count * inputs; ++i) {
      const float x = std::clamp(a.span<float>()[static_cast<std::size_t>(i)], -127.0f, 127.0f);
      if (type == WeightType::bf16)
        left.push_back(to_float(reinterpret_cast<bf16*>(rows.data())[i] = to_bf16(x)));
      else
        left.push_back(std::to_integer<int>(rows[static_cast<std::size_t>(i)] =
                                                static_cast<std::byte>(static_cast<int>(x) + 128)));
    }
    for (std::int64_t k = 0; k < inputs; ++k) {
      for (std::int64_t n = 0; n < outputs; ++n) {
        const float w = std::clamp(b.view<float>()(k, n), -127.0f, 127.0f);
        const auto at = layout.offset(k, n);
        if (type == WeightType::bf16)
          right.push_back(to_float(reinterpret_cast<bf16*>(panels.data())[at] = to_bf16(w)));
        else
          right.push_back(reinterpret_cast<std::int8_t*>(panels.data())[at] = static_cast<std::int8_t>(w));
      }
    }
  }
  Factors(const Factors&) = delete;

  double expected(std::int64_t i, std::int64_t n) const {
    double sum = 0;
    for (std::int64_t k = 0; k < layout.inputs; ++k)
      sum += left[static_cast<std::size_t>(i * layout.inputs + k)] *
             right[static_cast<std::size_t>(k * layout.outputs + n)];
    return sum;
  }

  NarrowLayout layout;
  std::vector<std::byte> rows, panels;
  std::vector<float> scales;
  NarrowProduct product;
  std::vector<double> left, right;  ///< [count, inputs], [inputs, outputs]
};

template <class Body>
void for_all_sizes(WeightType type, const Body& body) {
  const auto of_counts = [&](std::span<const std::int64_t> counts, bool units) {
    for (const std::int64_t inputs : inner_sizes)
      for (const std::int64_t outputs : outer_sizes)
        for (const std::int64_t count : counts) {
          SCOPED_TRACE(testing::Message()
                       << count << " x " << inputs << " x " << outputs << (units ? " by matrix units" : ""));
          body(Factors(type, count, inputs, outputs, units));
        }
  };
  of_counts(row_counts, false);
  if (!multiplies_by_units(type)) return;
  of_counts(row_counts, true);
  of_counts(more_row_counts, true);
}

TEST(Groups, SumsOfCodesAreExact) {
  if (!multiplies_groups(WeightType::int8)) GTEST_SKIP() << "no products of codes on this machine";
  for_all_sizes(WeightType::int8, [](const Factors& factors) {
    const std::int64_t count = factors.product.count, outputs = factors.layout.outputs;
    std::vector<std::int32_t> sums(static_cast<std::size_t>(count * outputs), -1);
    const View<std::int32_t> to(sums.data(), {count, outputs});
    for (const bool add : {false, true}) {
      multiply_groups(to, add, factors.product);
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t n = 0; n < outputs; ++n)
          ASSERT_EQ(to(i, n), (add ? 2 : 1) * factors.expected(i, n)) << i << ", " << n;
    }
  });
}

TEST(Groups, SumsOfPairsAreThoseOfTheRoundedNumbers) {
  if (!multiplies_groups(WeightType::bf16)) GTEST_SKIP() << "no products of bf16 on this machine";
  for_all_sizes(WeightType::bf16, [](const Factors& factors) {
    const std::int64_t count = factors.product.count, outputs = factors.layout.outputs;
    std::vector<float> sums(static_cast<std::size_t>(count * outputs), -1);
    const View<float> to(sums.data(), {count, outputs});
    for (const bool add : {false, true}) {
      multiply_groups(to, add, factors.product);
      std::vector<double> expected;
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t n = 0; n < outputs; ++n) expected.push_back((add ? 2 : 1) * factors.expected(i, n));
      ASSERT_LT(relative_error(sums, expected), 2e-6);
    }
  });
}

TEST(Groups, RowsMayBeColumnsOfPanels) {
  if (!multiplies_groups(WeightType::bf16)) GTEST_SKIP() << "no products of bf16 on this machine";
  for_all_sizes(WeightType::bf16, [](const Factors& factors) {
    const std::int64_t count = factors.product.count, outputs = factors.layout.outputs,
                       inputs = factors.layout.inputs;
    if (inputs % 2 != 0 || factors.product.units) return;
    constexpr std::int64_t before = 20;
    const NarrowLayout layout{WeightType::bf16, inputs, before + count};
    std::vector<bf16> panel(static_cast<std::size_t>(layout.bytes() / layout.element()));
    const auto* rows = static_cast<const bf16*>(factors.product.rows.rows);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t k = 0; k < inputs; ++k)
        panel[static_cast<std::size_t>(layout.offset(k, before + i))] = rows[i * inputs + k];
    NarrowProduct product = factors.product;
    product.rows.rows = panel.data() + layout.offset(0, before);
    product.columns = true;
    const Tensor sums = normal({count, outputs}, 3);
    for (const bool add : {false, true}) {
      Tensor of_rows = sums.clone(), of_columns = sums.clone();
      multiply_groups(of_rows.view<float>(), add, factors.product);
      multiply_groups(of_columns.view<float>(), add, product);
      ASSERT_TRUE(same_bits(of_columns.span<float>(), of_rows.span<float>()));
    }
  });
}

TEST(Groups, FactorsAreLaidOut) {
  for (const std::int64_t rows : {1, 2, 31, 32, 33, 70}) {
    for (const std::int64_t columns : {1, 5, 64, 65, 200}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns);
      const Tensor wide = normal({rows, columns}, 4);
      Tensor narrow(DType::bf16, {rows, columns});
      std::ranges::transform(wide.span<float>(), narrow.span<bf16>().begin(), to_bf16);
      const NarrowLayout layout{WeightType::bf16, (rows + 1) / 2 * 2, columns};
      const auto at = [&](std::int64_t i, std::int64_t j) {
        return i < rows && j < columns ? narrow.view<bf16>()(i, j).bits : std::uint16_t{0};
      };
      for (const bool rounded : {false, true}) {
        const ConstFloatView b = rounded ? ConstFloatView(narrow.view<bf16>()) : wide.view<float>();
        const auto number = [&](std::int64_t i, std::int64_t j) {
          return rounded ? to_float(narrow.view<bf16>()(i, j)) : wide.view<float>()(i, j);
        };
        std::vector<bf16> panels(static_cast<std::size_t>(layout.bytes() / layout.element()), bf16{0x7fff});
        std::vector<bf16> transposed(static_cast<std::size_t>(columns * layout.inputs), bf16{0x7fff});
        std::vector<bf16> memory(
            static_cast<std::size_t>(pair_band * layout.panels() * NarrowLayout::columns));
        for (std::int64_t begin = 0; begin < layout.padded_inputs(); begin += pair_band) {
          const std::int64_t end = std::min(begin + pair_band, layout.inputs);
          std::vector<float> sums[2], expected(static_cast<std::size_t>(columns));
          for (auto& of : sums) of.resize(static_cast<std::size_t>(columns), -1);
          pack_pairs(panels.data(), layout.padded_inputs(), b, begin, sums[0].data());
          for (std::int64_t j = 0; j < columns; ++j)
            for (std::int64_t i = begin; i < std::min(end, rows); ++i)
              expected[static_cast<std::size_t>(j)] += number(i, j);
          EXPECT_EQ(sums[0], expected);
          if (!multiplies_groups(WeightType::bf16)) continue;
          transpose_pairs(transposed.data(), layout.inputs, b, begin, end, memory.data(), sums[1].data());
          EXPECT_EQ(sums[1], expected);
        }
        for (std::int64_t i = 0; i < layout.padded_inputs(); ++i) {
          for (std::int64_t j = 0; j < layout.panels() * NarrowLayout::columns; ++j)
            ASSERT_EQ(panels[static_cast<std::size_t>(layout.offset(i, j))].bits, at(i, j)) << i << ", " << j;
          for (std::int64_t j = 0; i < layout.inputs && j < columns && multiplies_groups(WeightType::bf16);
               ++j)
            ASSERT_EQ(transposed[static_cast<std::size_t>(j * layout.inputs + i)].bits, at(i, j))
                << i << ", " << j;
        }
      }
    }
  }
}

void expect_rows_alone(const Factors& factors) {
  const std::int64_t count = factors.product.count, outputs = factors.layout.outputs;
  Tensor all = Tensor::of<float>({count, outputs}), alone = Tensor::of<float>({1, outputs}),
         bias = normal({outputs}, 3);
  const auto size = static_cast<std::size_t>(outputs);
  CodeScales weights{std::vector<float>(size, 0.01f), std::vector<std::int32_t>(size, 7)};
  const Epilogue epilogue{bias.view<float>(), Activation::gelu, {}};
  multiply_groups(all.view<float>(), factors.product, &weights, 0, epilogue);
  for (std::int64_t i = 0; i < count; ++i) {
    NarrowProduct one = factors.product;
    one.count = 1;
    one.rows.rows = static_cast<std::byte*>(one.rows.rows) + i * one.row_bytes();
    multiply_groups(alone.view<float>(), one, &weights, 0, epilogue);
    EXPECT_TRUE(same_bits(alone.span<float>(), std::span(all.view<float>().at(i), size))) << i;
  }
}

TEST(Groups, RowsDoNotDependOnTheirCompany) {
  for (const WeightType type : {WeightType::bf16, WeightType::int8}) {
    if (!multiplies_groups(type)) continue;
    expect_rows_alone(Factors(type, 13, 257, 130));
    if (!multiplies_by_units(type)) continue;
    for (const std::int64_t count : {13, 16, 39, 64}) expect_rows_alone(Factors(type, count, 257, 130, true));
  }
}

TEST(Groups, WhatFollowsIsThatOfTheSums) {
  for (const WeightType type : {WeightType::bf16, WeightType::int8}) {
    if (!multiplies_groups(type)) continue;
    for_all_sizes(type, [&](const Factors& factors) {
      const std::int64_t count = factors.product.count, outputs = factors.layout.outputs;
      Tensor sums = Tensor::of<float>({count, outputs}), bias = normal({outputs}, 3),
             residual = normal({count, outputs}, 4);
      CodeScales weights{std::vector<float>(static_cast<std::size_t>(outputs), 0.01f),
                         std::vector<std::int32_t>(static_cast<std::size_t>(outputs), 7)};
      if (type == WeightType::bf16)
        multiply_groups(sums.view<float>(), false, factors.product);
      else
        multiply_groups(View<std::int32_t>(reinterpret_cast<std::int32_t*>(sums.raw()), {count, outputs}),
                        false, factors.product);
      const NarrowSums narrow{type, sums.raw(), outputs, factors.scales.data(), &weights, 0};
      for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
        Tensor expected = residual.clone(), actual = residual.clone();
        finish_narrow(expected.view<float>(), narrow,
                      {bias.view<float>(), activation, expected.view<float>()});
        multiply_groups(actual.view<float>(), factors.product, &weights, 0,
                        {bias.view<float>(), activation, actual.view<float>()});
        ASSERT_TRUE(same_bits(actual.span<float>(), expected.span<float>()));
      }
    });
  }
}

// What pads a panel is zero, and a row's neighbour in memory is no part of it.
TEST(Groups, ANumberThatIsNoneStaysInItsRow) {
  if (!multiplies_groups(WeightType::bf16)) GTEST_SKIP() << "no products of bf16 on this machine";
  for (const bool units : {false, true}) {
    if (units && !multiplies_by_units(WeightType::bf16)) continue;
    for (const std::int64_t inputs : {1, 3, 33}) {
      Factors factors(WeightType::bf16, 3, inputs, 70, units);
      reinterpret_cast<bf16*>(factors.rows.data())[inputs] = to_bf16(std::numeric_limits<float>::quiet_NaN());
      Tensor sums = Tensor::of<float>({3, 70});
      multiply_groups(sums.view<float>(), false, factors.product);
      for (std::int64_t n = 0; n < 70; ++n) {
        EXPECT_TRUE(std::isfinite(sums.view<float>()(0, n)) && std::isfinite(sums.view<float>()(2, n)));
        EXPECT_TRUE(std::isnan(sums.view<float>()(1, n)));
      }
    }
  }
}

}  // namespace
}  // namespace linnet::kernels
