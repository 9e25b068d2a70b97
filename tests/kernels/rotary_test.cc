#include "kernels/rotary.h"

#include <gtest/gtest.h>

#include "kernels/samples.h"
#include "kernels/targets.h"
#include "support/contexts.h"
#include "support/numbers.h"

namespace linnet::kernels {
namespace {

/// One row, rotated with the angle in long double.
std::vector<double> expected_row(const float* x, std::int64_t d, std::int64_t position) {
  std::vector<double> y(static_cast<std::size_t>(d));
  for (std::int64_t j = 0; j < d / 2; ++j) {
    const long double angle =
        static_cast<long double>(position) *
        std::pow(10000.0L, -2.0L * static_cast<long double>(j) / static_cast<long double>(d));
    const double c = static_cast<double>(std::cos(angle)), s = static_cast<double>(std::sin(angle));
    y[static_cast<std::size_t>(j)] = x[j] * c - x[j + d / 2] * s;
    y[static_cast<std::size_t>(j + d / 2)] = x[j + d / 2] * c + x[j] * s;
  }
  return y;
}

const std::int64_t starts[] = {0, 1, 4095, 999'998, std::int64_t{1} << 30, (std::int64_t{1} << 40) - 4};

TEST(Rotary, TurnsPairsByTheirAnglesOnEveryTarget) {
  for_every_target([] {
    for (const std::int64_t d : {2, 6, 32, 66, 1024})
      for (const std::int64_t first : starts) {
        SCOPED_TRACE(testing::Message() << "heads of " << d << ", position " << first);
        // Rows of a wider matrix: one part of queries, keys and values.
        Tensor memory = normal({2, 3, 5 * d}, 1);
        const Tensor before = memory.clone();
        const View<float> x(memory.span<float>().data(), {2, 3, 4, d}, {15 * d, 5 * d, d, 1});
        const auto frequencies = rotary_frequencies(d);
        rotate(any_context(), x, first, frequencies);
        double worst = 0;
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t i = 0; i < 3; ++i) {
            const float* row = &before.span<float>()[static_cast<std::size_t>((b * 3 + i) * 5 * d)];
            for (std::int64_t head = 0; head < 4; ++head)
              worst = larger(worst, relative_error({x.at(b, i, head), static_cast<std::size_t>(d)},
                                                   expected_row(row + head * d, d, first + i)));
            EXPECT_TRUE(same_bits(std::span(x.at(b, i) + 4 * d, static_cast<std::size_t>(d)),
                                  std::span(row + 4 * d, static_cast<std::size_t>(d))));
          }
        EXPECT_LT(worst, 1e-6);
        rotate(any_context(), x, first, frequencies, Turn::back);
        EXPECT_LT(relative_error(memory.span<float>(), std::vector<double>(before.span<float>().begin(),
                                                                           before.span<float>().end())),
                  1e-6);
      }
  });
}

TEST(Rotary, RowsHaveTheBitsOfTheParallelForm) {
  for_every_target([] {
    for (const std::int64_t d : {2, 34, 64})
      for (const int threads : {1, 3}) {
        Context context(threads);
        Tensor together = normal({1, 70, 3, d}, 1), alone = together.clone();
        const auto frequencies = rotary_frequencies(d);
        rotate(context, together.view<float>(), 12'345, frequencies);
        std::vector<std::int64_t> positions;
        for (std::int64_t i = 0; i < 70; ++i) positions.push_back(12'345 + i);
        rotate_rows(context, alone.view<float>().reshape({70, 3, d}), positions, frequencies);
        EXPECT_TRUE(same_bits(together.span<float>(), alone.span<float>()));
      }
  });
}

TEST(Rotary, ProductsDependOnTheDistanceAlone) {
  const std::int64_t d = 16;
  const Tensor q = normal({1, 1, 1, d}, 1), k = normal({1, 1, 1, d}, 2);
  const auto frequencies = rotary_frequencies(d);
  const auto product = [&](std::int64_t query, std::int64_t key) {
    Tensor a = q.clone(), b = k.clone();
    rotate(any_context(), a.view<float>(), query, frequencies);
    rotate(any_context(), b.view<float>(), key, frequencies);
    double sum = 0;
    for (std::size_t j = 0; j < static_cast<std::size_t>(d); ++j)
      sum += a.span<float>()[j] * b.span<float>()[j];
    return sum;
  };
  for (const std::int64_t distance : {0, 1, 17, 1000})
    for (const std::int64_t key : {std::int64_t{5}, std::int64_t{100'000}, std::int64_t{1} << 39})
      EXPECT_NEAR(product(key + distance, key), product(distance, 0), 1e-5) << distance << " from " << key;
}

}  // namespace
}  // namespace linnet::kernels
