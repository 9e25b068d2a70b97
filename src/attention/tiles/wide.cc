#include "attention/tiles/wide.h"

#include <algorithm>

namespace linnet {

WideInput::WideInput(Context& context, ConstFloatView x) {
  if (x.dtype() == DType::f32) {
    view_ = x.as<const float>();
    return;
  }
  copy_ = Tensor::of<float>(Shape(x.shape().begin(), x.shape().end()));
  const View<float> to = copy_.view<float>();
  for_each_row(context, to.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    read_row(to.at(b, i, h), rows_of(x, b, h), i);
  });
  view_ = to;
}

WideOutput::WideOutput(FloatView result) : result_(result) {
  if (result.dtype() == DType::f32) {
    view_ = result.as<float>();
    return;
  }
  wide_ = Tensor::of<float>(Shape(result.shape().begin(), result.shape().end()));
  view_ = wide_.view<float>();
}

WideOutput WideOutput::zeros(Context& context, FloatView result) {
  WideOutput output(result);
  if (result.dtype() == DType::f32) output.clear(context);
  return output;
}

void WideOutput::clear(Context& context) const {
  for_each_row(context, view_.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    std::fill_n(view_.at(b, i, h), view_.extent(3), 0.0f);
  });
}

void WideOutput::finish(Context& context) const {
  if (result_.dtype() == DType::f32) return;
  for_each_row(context, view_.shape(), [&](std::int64_t b, std::int64_t i, std::int64_t h) {
    write_row(rows_of(result_, b, h), i, view_.at(b, i, h));
  });
}

}  // namespace linnet
