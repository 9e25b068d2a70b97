#pragma once

#include <algorithm>

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
  WideInput(Context& context, ConstFloatView x) {
    if (x.dtype() == DType::f32) {
      view_ = x.as<const float>();
      return;
    }
    copy_ = Tensor::of<float>(Shape(x.shape().begin(), x.shape().end()));
    const View<float> to = copy_.view<float>();
    const View<const bf16> from = x.as<const bf16>();
    for_each_row(context, to.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
      std::transform(from.at(b, i, h), from.at(b, i, h) + from.extent(3), to.at(b, i, h), to_float);
    });
    view_ = to;
  }

  View<const float> view() const { return view_; }

 private:
  Tensor copy_;
  View<const float> view_;
};

/// What a family writes [B, N, H, D], in f32: the caller's memory, or a wider one that `finish` rounds once
/// to bf16. Begins with whatever the memory holds.
class WideOutput {
 public:
  explicit WideOutput(FloatView result) : result_(result) {
    if (result.dtype() == DType::f32) {
      view_ = result.as<float>();
      return;
    }
    wide_ = Tensor::of<float>(Shape(result.shape().begin(), result.shape().end()));
    view_ = wide_.view<float>();
  }

  View<float> view() const { return view_; }

  void clear(Context& context) const {
    for_each_row(context, view_.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
      std::fill_n(view_.at(b, i, h), view_.extent(3), 0.0f);
    });
  }

  void finish(Context& context) const {
    if (result_.dtype() == DType::f32) return;
    const View<bf16> to = result_.as<bf16>();
    for_each_row(context, view_.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
      std::transform(view_.at(b, i, h), view_.at(b, i, h) + view_.extent(3), to.at(b, i, h), to_bf16);
    });
  }

 private:
  FloatView result_;
  Tensor wide_;
  View<float> view_;
};

}  // namespace linnet
