#pragma once

#include "attention/tiles/rows.h"
#include "base/parallel.h"
#include "linnet/tensor.h"

namespace linnet {

/// Calls body(b, i, h) for every row of a tensor [B, N, H, D] on all threads of the context.
template <class Body>
void for_each_row(Context& context, std::span<const std::int64_t> shape, const Body& body) {
  const std::int64_t length = shape[1], heads = shape[2];
  parallel_blocks(context, shape[0] * length, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t h = 0; h < heads; ++h) body(row / length, row % length, h);
  });
}

/// What a family reads [B, N, H, D], in f32: the caller's memory, or a wider copy of bf16.
class WideInput {
 public:
  WideInput(Context& context, ConstFloatView x);

  View<const float> view() const { return view_; }

 private:
  Tensor copy_;
  View<const float> view_;
};

/// What a family writes [B, N, H, D], in f32: the caller's memory, or a wider one that `finish` rounds once
/// to bf16.
class WideOutput {
 public:
  /// Begins with whatever the memory holds.
  explicit WideOutput(FloatView result);

  /// For sums: begins with zeros.
  static WideOutput zeros(Context& context, FloatView result);

  View<float> view() const { return view_; }
  void clear(Context& context) const;
  void finish(Context& context) const;

 private:
  FloatView result_;
  Tensor wide_;
  View<float> view_;
};

}  // namespace linnet
