// Products of 8-bit codes where the processor has no instructions for them.
#include "kernels/codes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/contexts.h"

namespace linnet::kernels {
namespace {

struct Factors {
  NarrowLayout layout;
  std::vector<std::uint8_t> rows;
  std::vector<std::byte> panels;
  std::vector<std::int8_t> weights;  ///< [inputs, outputs]
};

/// Codes of all sizes; the largest of both signs among them, whose sums are the largest that there are.
Factors random_factors(std::int64_t count, std::int64_t inputs, std::int64_t outputs) {
  std::mt19937 random(static_cast<std::uint32_t>(count + 100 * inputs + 100'000 * outputs));
  Factors result{{WeightType::int8, inputs, outputs}, {}, {}, {}};
  result.panels.resize(static_cast<std::size_t>(result.layout.bytes()));
  const auto code = [&](int least, int most) {
    const int size = static_cast<int>(random() % 4);
    return size == 0 ? least : size == 1 ? most : least + static_cast<int>(random() % 255);
  };
  for (std::int64_t i = 0; i < count * inputs; ++i)
    result.rows.push_back(static_cast<std::uint8_t>(code(1, 255)));
  for (std::int64_t k = 0; k < inputs; ++k) {
    for (std::int64_t n = 0; n < outputs; ++n) {
      result.weights.push_back(static_cast<std::int8_t>(code(-127, 127)));
      result.panels[static_cast<std::size_t>(result.layout.offset(k, n))] =
          static_cast<std::byte>(result.weights.back());
    }
  }
  return result;
}

TEST(Codes, SumsAreExact) {
  for (const std::int64_t inputs : {1, 3, 4, 63, 256, 257, 1030}) {
    for (const std::int64_t outputs : {1, 64, 65, 130}) {
      for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 13}) {
        SCOPED_TRACE(testing::Message() << count << " x " << inputs << " x " << outputs);
        const Factors factors = random_factors(count, inputs, outputs);
        std::vector<std::int32_t> sums(static_cast<std::size_t>(count * outputs), -1), expected;
        multiply_codes(any_context(), sums.data(), factors.layout, factors.rows.data(), count,
                       factors.panels.data(), outputs);
        for (std::int64_t i = 0; i < count; ++i) {
          for (std::int64_t n = 0; n < outputs; ++n) {
            std::int32_t sum = 0;
            for (std::int64_t k = 0; k < inputs; ++k)
              sum += factors.rows[static_cast<std::size_t>(i * inputs + k)] *
                     factors.weights[static_cast<std::size_t>(k * outputs + n)];
            expected.push_back(sum);
          }
        }
        ASSERT_EQ(sums, expected);
      }
    }
  }
}

TEST(Codes, WithoutInputsAreZero) {
  std::vector<std::int32_t> sums(6, -1);
  multiply_codes(any_context(), sums.data(), {WeightType::int8, 0, 3}, nullptr, 2, nullptr, 3);
  EXPECT_EQ(sums, std::vector<std::int32_t>(6, 0));
}

}  // namespace
}  // namespace linnet::kernels
