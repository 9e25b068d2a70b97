#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace linnet {

/// The value below which that share of the sorted values lies, between two of them linearly.
inline double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// The median of values, which are sorted.
inline double median_of(std::vector<double>& values) {
  std::ranges::sort(values);
  return quantile(values, 0.5);
}

}  // namespace linnet
