#pragma once

#include <vector>

namespace linnet {

struct Point {
  double x = 0, y = 0;
};

/// One way to write a digit, in a unit square with y downwards. A stroke is a smooth curve through points
/// named by their index; it is closed smoothly where it ends on the point it began with. Strokes that share a
/// point stay joined however the points are moved; that is how corners are made.
struct Skeleton {
  std::vector<Point> points;
  std::vector<std::vector<int>> strokes;
};

/// The ways to write a digit 0 … 9.
const std::vector<Skeleton>& skeletons_of(int digit);

}  // namespace linnet
