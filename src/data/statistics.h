#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "linnet/dataset.h"

namespace linnet {

/// Mean and population deviation of the columns of rows of numbers, in two passes. `for_each_row` calls its
/// argument with a pointer to each row. NaN is left out; a column of NaN alone has the mean NaN.
template <class ForEachRow>
ColumnStatistics statistics_of_rows(std::size_t columns, const ForEachRow& for_each_row) {
  ColumnStatistics result{std::vector<double>(columns), std::vector<double>(columns)};
  std::vector<std::int64_t> known(columns);
  for_each_row([&](const float* row) {
    for (std::size_t c = 0; c < columns; ++c) {
      if (std::isnan(row[c])) continue;
      ++known[c];
      result.mean[c] += double{row[c]};
    }
  });
  for (std::size_t c = 0; c < columns; ++c) result.mean[c] /= static_cast<double>(known[c]);
  for_each_row([&](const float* row) {
    for (std::size_t c = 0; c < columns; ++c) {
      const double difference = double{row[c]} - result.mean[c];
      if (!std::isnan(row[c])) result.deviation[c] += difference * difference;
    }
  });
  for (std::size_t c = 0; c < columns; ++c)
    result.deviation[c] = std::sqrt(result.deviation[c] / static_cast<double>(known[c]));
  return result;
}

}  // namespace linnet
