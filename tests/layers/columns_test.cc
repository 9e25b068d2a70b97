#include "layers/columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "linnet/error.h"

namespace linnet {
namespace {

constexpr std::uint64_t seed = 93;
constexpr float none = std::numeric_limits<float>::quiet_NaN();

TEST(Columns, AreBroughtToTheScaleOfTheTrainingDataAndBack) {
  ParameterTable table;
  const Columns columns(table, "columns", {2, 2, true});
  Tensor values = Tensor::of<float>({table.size()});
  table.initialise(values.span<float>(), seed);
  columns.set(values.span<float>(), std::vector<double>{10, -1}, std::vector<double>{2, 0},
              std::vector<double>{10, -1}, std::vector<double>{4, 0.5});
  Columns packed = columns;
  packed.pack(values.span<float>());
  std::vector<float> inputs = {12, -1, none, 4}, targets = {16, -2, 14, none}, z(4);
  packed.normalise(View<float>(z.data(), {2, 2}), View<const float>(inputs.data(), {2, 2}));
  EXPECT_EQ(z, (std::vector<float>{1, 0, 0, 5}));
  packed.normalise_targets(View<float>(z.data(), {2, 2}), View<const float>(targets.data(), {2, 2}),
                           View<const float>(inputs.data(), {2, 2}));
  EXPECT_EQ(z[0], 1);   // 16 is a deviation of 4 above the last number, 12
  EXPECT_EQ(z[1], -2);  // −2 is two of 0.5 below −1
  EXPECT_EQ(z[2], 1);   // no last number: from the mean
  EXPECT_TRUE(std::isnan(z[3]));
  packed.restore(View<float>(z.data(), {2, 2}), View<const float>(z.data(), {2, 2}),
                 View<const float>(inputs.data(), {2, 2}));
  EXPECT_EQ(std::vector<float>(z.begin(), z.begin() + 3), (std::vector<float>{16, -2, 14}));
}

TEST(Columns, StatisticsAreCheckedAsTheFloatsThatTheyBecome) {
  ParameterTable table;
  const Columns columns(table, "columns", {1, 1, false});
  Tensor values = Tensor::of<float>({table.size()});
  const auto set = [&](double mean, double deviation) {
    columns.set(values.span<float>(), std::vector<double>{mean}, std::vector<double>{deviation},
                std::vector<double>{0}, std::vector<double>{1});
  };
  EXPECT_THROW(set(1e300, 1), UsageError);
  EXPECT_THROW(set(0, 1e300), UsageError);
  EXPECT_THROW(set(0, -1), UsageError);
  set(0, 1e-50);
  Columns packed = columns;
  packed.pack(values.span<float>());
  const std::vector<float> input = {3};
  std::vector<float> z(1);
  packed.normalise(View<float>(z.data(), {1, 1}), View<const float>(input.data(), {1, 1}));
  EXPECT_EQ(z[0], 3);
}

TEST(Columns, InputsAreCountedFromTheLastNumbersOfTheRowBefore) {
  // Rows of two steps of two series.
  ParameterTable table;
  const Columns columns(table, "columns",
                        {.columns = 4, .targets = 2, .relative = true, .relative_inputs = true, .patch = 2});
  Tensor values = Tensor::of<float>({table.size()});
  table.initialise(values.span<float>(), seed);
  columns.set(values.span<float>(), std::vector<double>{5, 6, 5, 6}, std::vector<double>{1, 2, 1, 2},
              std::vector<double>{5, 6}, std::vector<double>{1, 2});
  Columns packed = columns;
  packed.pack(values.span<float>());
  std::vector<float> inputs = {10, 20, 11, 24, 13, none, none, 30, 8, 40, 9, none}, z(12);
  const View<const float> rows(inputs.data(), {3, 4});
  packed.normalise(View<float>(z.data(), {3, 4}), rows);
  // The first row counts from its own first step; the last number of the second row's first series is none.
  EXPECT_EQ(z, (std::vector<float>{0, 0, 1, 2, 2, 0, 0, 3, 0, 5, 1, 0}));
  // Adding a number to all values of a series changes nothing.
  std::vector<float> moved = inputs, again(12);
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += i % 2 == 0 ? 64.0f : -32.0f;
  packed.normalise(View<float>(again.data(), {3, 4}), View<const float>(moved.data(), {3, 4}));
  EXPECT_EQ(again, z);
  // The same rows one by one.
  for (std::int64_t i = 1; i < 3; ++i) {
    packed.normalise(View<float>(again.data(), {1, 4}), rows.slice(0, i, i + 1),
                     packed.last_numbers(rows, i - 1));
    EXPECT_TRUE(std::equal(again.begin(), again.begin() + 4, z.begin() + 4 * i)) << "row " << i;
  }
  // Targets count from the last step of their row.
  const std::vector<float> targets = {12, 26};
  packed.normalise_targets(View<float>(z.data(), {1, 2}), View<const float>(targets.data(), {1, 2}),
                           rows.slice(0, 0, 1));
  EXPECT_EQ(z[0], 1);
  EXPECT_EQ(z[1], 1);
}

}  // namespace
}  // namespace linnet
