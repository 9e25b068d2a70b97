#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "linnet/tensor.h"

namespace linnet {

/// Standard normal numbers times `deviation`, decided by the seed.
inline std::vector<float> normals(std::int64_t count, std::uint64_t seed, double deviation = 1) {
  const Random random(seed, Draw::test);
  std::vector<float> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(static_cast<float>(deviation * random.normal(i)));
  return result;
}

/// Numbers in 0 … bound − 1, decided by the seed.
inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t bound, std::uint64_t seed) {
  const Random random(seed, Draw::test, 1);
  std::vector<std::int32_t> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(bound), i)));
  return result;
}

template <class T>
std::vector<double> in_double(const T& x) {
  return std::vector<double>(x.begin(), x.end());
}

template <class T>
double norm(const T& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

inline View<float> view(std::vector<float>& x, std::initializer_list<std::int64_t> shape) {
  EXPECT_EQ(View<float>(x.data(), shape).size(), static_cast<std::int64_t>(x.size()));
  return {x.data(), shape};
}
inline View<const float> view(const std::vector<float>& x, std::initializer_list<std::int64_t> shape) {
  EXPECT_EQ(View<const float>(x.data(), shape).size(), static_cast<std::int64_t>(x.size()));
  return {x.data(), shape};
}

/// ‖actual − expected‖ / max(‖expected‖, floor). Not a number where `actual` has one that is none.
template <class Actual, class Expected>
double relative_error(const Actual& actual, const Expected& expected, double floor = 1e-30) {
  EXPECT_EQ(std::size(actual), std::size(expected));
  double sum = 0;
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const double difference = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
    sum += difference * difference;
  }
  return std::sqrt(sum) / std::max(norm(expected), floor);
}

/// The larger of two errors, NaN where either is: `std::max` would lose it.
inline double larger(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

/// Whether the bytes are the same: 0 and −0 differ, a NaN equals itself.
template <class A, class B>
bool same_bits(const A& a, const B& b) {
  return std::size(a) == std::size(b) &&
         (std::empty(a) || std::memcmp(std::data(a), std::data(b), std::size(a) * sizeof *std::data(a)) == 0);
}

}  // namespace linnet
