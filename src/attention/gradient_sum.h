#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "linnet/tensor.h"

namespace linnet {

/// Calls body(b, i, h) for every row of x [B, N, H, D].
template <class Body>
void for_each_row(Context& context, View<float> x, const Body& body) {
  parallel_blocks(context, x.extent(0) * x.extent(1), 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t h = 0; h < x.extent(2); ++h) body(row / x.extent(1), row % x.extent(1), h);
  });
}

/// A gradient [B, N, H, D] while it is summed up: f32, the caller's own memory where that is f32.
class GradientSum {
 public:
  /// Begins with zeros.
  GradientSum(Context& context, FloatView gradient);

  View<float> view() const { return view_; }

  /// Rounds the sums to what the caller wants, once.
  void finish(Context& context) const;

 private:
  FloatView gradient_;
  Tensor wide_;
  View<float> view_;
};

}  // namespace linnet
