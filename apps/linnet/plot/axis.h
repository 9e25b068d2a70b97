#pragma once

#include <vector>

namespace linnet {

/// One axis of a chart: logarithmic where all values are positive and the largest is at least ten times the
/// least, otherwise linear.
class Axis {
 public:
  Axis() = default;
  /// For values from `least` to `most`, with a margin on both sides, onto [from, to] of the picture.
  /// `beneath` is the part of the picture, below 1, that stays free at the lower end.
  /// With `linear` the axis is linear in any case.
  Axis(double least, double most, double from, double to, double beneath = 0, bool linear = false);

  double place(double value) const;

  /// At least four round numbers on the axis, rising.
  std::vector<double> round_numbers() const;

 private:
  std::vector<double> powers() const;
  std::vector<double> multiples() const;

  bool logarithmic_ = false;
  double least_ = 0, most_ = 1, from_ = 0, to_ = 1;  // of the whole axis
};

}  // namespace linnet
