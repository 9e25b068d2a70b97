#include "attention/gradient_sum.h"

#include <algorithm>

#include "attention/softmax/tiles.h"

namespace linnet {

GradientSum::GradientSum(Context& context, FloatView gradient) : gradient_(gradient) {
  if (gradient.dtype() == DType::bf16) {
    wide_ = Tensor::of<float>(Shape(gradient.shape().begin(), gradient.shape().end()));
    view_ = wide_.view<float>();
    return;
  }
  view_ = gradient.as<float>();
  for_each_row(context, view_, [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    std::fill_n(view_.at(b, i, h), view_.extent(3), 0.0f);
  });
}

void GradientSum::finish(Context& context) const {
  if (gradient_.dtype() != DType::bf16) return;
  const View<bf16> to = gradient_.as<bf16>();
  for_each_row(context, view_, [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    softmax::narrow_row(to.at(b, i, h), view_.at(b, i, h), view_.extent(3));
  });
}

}  // namespace linnet
