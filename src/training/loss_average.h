#pragma once

#include <algorithm>

namespace linnet {

/// The mean of the losses of all updates so far, in which a loss weighs 2 % less with each later update; so
/// it is mostly that of the last fifty.
struct LossAverage {
  double sum = 0;
  double weight = 0;  ///< of the losses in the sum, below 1
  double lowest = 0;  ///< mean so far

  double mean() const { return weight > 0 ? sum / weight : 0; }

  void add(double bits) {
    const bool first = weight == 0;
    sum = kept * sum + (1 - kept) * bits;
    weight = kept * weight + (1 - kept);
    lowest = first ? mean() : std::min(lowest, mean());
  }

 private:
  static constexpr double kept = 0.98;
};

}  // namespace linnet
