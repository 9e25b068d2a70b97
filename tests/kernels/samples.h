#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "linnet/tensor.h"
#include "support/numbers.h"

namespace linnet::kernels {

inline constexpr std::uint64_t test_seed = 2024;

/// Normal numbers times `size`; another `stream`, other numbers.
inline Tensor normal(Shape shape, std::uint32_t stream, float size = 1) {
  Tensor result = Tensor::of<float>(std::move(shape));
  const Random random(test_seed, Draw::test, stream);
  std::uint64_t index = 0;
  for (float& x : result.span<float>()) x = size * static_cast<float>(random.normal(index++));
  return result;
}

/// Rows of a wider matrix: outer stride columns + gap.
inline View<float> strided(Tensor& memory, std::int64_t rows, std::int64_t columns, std::int64_t gap) {
  return View<float>(memory.span<float>().data(), {rows, columns}, {columns + gap, 1});
}

/// The nearest bf16 of each number.
inline Tensor rounded(const Tensor& x) {
  Tensor result = Tensor::of<bf16>(x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i)
    result.span<bf16>()[static_cast<std::size_t>(i)] = to_bf16(x.span<float>()[static_cast<std::size_t>(i)]);
  return result;
}

/// The same numbers as f32.
inline Tensor widened(const Tensor& x) {
  Tensor result = Tensor::of<float>(x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i)
    result.span<float>()[static_cast<std::size_t>(i)] = to_float(x.span<bf16>()[static_cast<std::size_t>(i)]);
  return result;
}

/// ‖actual − expected‖ / max(‖expected‖, tiny).
inline double relative_error(std::span<const float> actual, std::span<const double> expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double error = 0, size = 1e-60;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

/// Largest |actual − expected| / max(1, |expected|), NaN where anything is.
inline double mixed_error(std::span<const float> actual, std::span<const double> expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    error = larger(error, std::abs(actual[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
  return error;
}

inline std::vector<float> dense_copy(View<const float> x) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < x.extent(0); ++i) result.insert(result.end(), x.at(i), x.at(i) + x.extent(1));
  return result;
}

}  // namespace linnet::kernels
