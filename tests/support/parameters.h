#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "layers/parameters.h"
#include "reference/matrix.h"
#include "support/numbers.h"

namespace linnet {

/// Values of a table's parameters of which none is special: gains are not 1, biases not 0.
inline Tensor random_values(const ParameterTable& table, std::uint64_t seed) {
  Tensor values = Tensor::of<float>({table.size()});
  std::uint64_t row_seed = seed * 1000;
  for (const auto& row : table.rows()) {
    const bool matrix = row.place.shape().size() > 1;
    const double deviation = matrix ? 1 / std::sqrt(static_cast<double>(row.place.shape().back())) : 0.3;
    const bool gain = !matrix && row.name.ends_with(".weight");
    const std::vector<float> numbers = normals(row.count, ++row_seed, deviation);
    float* to = row.place.of(values.span<float>()).data();
    for (std::int64_t i = 0; i < row.count; ++i)
      to[i] = numbers[static_cast<std::size_t>(i)] + (gain ? 1 : 0);
  }
  return values;
}

/// A buffer of a table's parameters as the reference takes them, times `factor`.
inline reference::Parameters by_name(const ParameterTable& table, std::span<const float> buffer,
                                     double factor = 1) {
  reference::Parameters result;
  for (const auto& row : table.rows()) {
    const float* from = row.place.of(buffer).data();
    auto& values = result[row.name];
    for (std::int64_t i = 0; i < row.count; ++i) values.push_back(factor * from[i]);
  }
  return result;
}

/// Sets all values of one parameter.
inline void fill(const ParameterTable& table, std::span<float> buffer, const std::string& name, float value) {
  const auto row = std::ranges::find(table.rows(), name, &ParameterTable::Row::name);
  ASSERT_NE(row, table.rows().end()) << name;
  std::fill_n(row->place.of(buffer).data(), row->count, value);
}

using Loss = std::function<double(const reference::Parameters&)>;

/// Gradient of a loss in double precision by central differences.
inline reference::Parameters differences(const Loss& loss, reference::Parameters at) {
  constexpr double step = 1e-5;
  reference::Parameters result;
  for (auto& [name, values] : at)
    for (double& value : values) {
      const double before = value;
      value = before + step;
      const double above = loss(at);
      value = before - step;
      const double below = loss(at);
      value = before;
      result[name].push_back((above - below) / (2 * step));
    }
  return result;
}

/// Every parameter's gradient within `tolerance` of the expected one, norm-wise. Gradients that are (nearly)
/// zero in truth, as that of softmax's key bias is, are measured against a hundredth of the largest
/// parameter's.
inline void expect_gradients(const reference::Parameters& actual, const reference::Parameters& expected,
                             double tolerance = 1e-5) {
  double largest = 0;
  for (const auto& [name, values] : expected) largest = std::max(largest, norm(values));
  EXPECT_GT(largest, 0);
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_LT(relative_error(actual.at(name), values, largest / 100), tolerance) << name;
  }
  EXPECT_EQ(actual.size(), expected.size());
}

/// What lies between two parameters holds 0 alone.
inline void expect_padding_is_zero(const ParameterTable& table, std::span<const float> buffer) {
  std::vector<bool> owned(buffer.size());
  for (const auto& row : table.rows()) std::fill_n(owned.begin() + row.place.offset(), row.count, true);
  for (std::size_t i = 0; i < buffer.size(); ++i)
    if (!owned[i]) {
      EXPECT_EQ(buffer[i], 0) << "element " << i;
    }
}

}  // namespace linnet
