#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace linnet::reference {

/// Rows of doubles, one after another.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t rows, std::int64_t columns)
      : rows(rows), columns(columns), values(static_cast<std::size_t>(rows * columns)) {}
  Matrix(std::int64_t rows, std::int64_t columns, std::span<const double> from)
      : rows(rows), columns(columns), values(from.begin(), from.end()) {}

  double& operator()(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  double operator()(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

/// Parameters, or their gradients, by the names of a model's ParameterTable.
using Parameters = std::map<std::string, std::vector<double>>;

}  // namespace linnet::reference
