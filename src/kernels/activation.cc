#include "kernels/activation.h"

#include <cassert>

#include "kernels/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/activation-inl.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <Activation activation>
void forward(float* y, const float* x, std::int64_t n) {
  for_vectors(n, [&](auto lanes, std::int64_t i) {
    lanes.store(activate<activation>(FloatTag(), lanes.load(x + i)), y + i);
  });
}

template <Activation activation>
void backward(float* dx, const float* dy, const float* x, std::int64_t n) {
  for_vectors(n, [&](auto lanes, std::int64_t i) {
    const FloatVector slope = activation_slope<activation>(FloatTag(), lanes.load(x + i));
    lanes.store(hn::Mul(lanes.load(dy + i), slope), dx + i);
  });
}

void activate_piece(float* y, const float* x, std::int64_t n, Activation activation) {
  switch (activation) {
    case Activation::none:
      return forward<Activation::none>(y, x, n);
    case Activation::relu:
      return forward<Activation::relu>(y, x, n);
    case Activation::gelu:
      return forward<Activation::gelu>(y, x, n);
    case Activation::gelu_tanh:
      return forward<Activation::gelu_tanh>(y, x, n);
    case Activation::swiglu:
      return forward<Activation::swiglu>(y, x, n);
  }
}

void differentiate_piece(float* dx, const float* dy, const float* x, std::int64_t n, Activation activation) {
  switch (activation) {
    case Activation::none:
      return backward<Activation::none>(dx, dy, x, n);
    case Activation::relu:
      return backward<Activation::relu>(dx, dy, x, n);
    case Activation::gelu:
      return backward<Activation::gelu>(dx, dy, x, n);
    case Activation::gelu_tanh:
      return backward<Activation::gelu_tanh>(dx, dy, x, n);
    case Activation::swiglu:
      return backward<Activation::swiglu>(dx, dy, x, n);
  }
}

void swiglu_piece(float* y, const float* a, const float* b, std::int64_t n) {
  for_vectors(n, [&](auto lanes, std::int64_t i) {
    const FloatVector silu = activate<Activation::swiglu>(FloatTag(), lanes.load(a + i));
    lanes.store(hn::Mul(silu, lanes.load(b + i)), y + i);
  });
}

void swiglu_backward_piece(float* da, float* db, const float* dy, const float* a, const float* b,
                           std::int64_t n) {
  for_vectors(n, [&](auto lanes, std::int64_t i) {
    const FloatTag d;
    const FloatVector x = lanes.load(a + i), gradient = lanes.load(dy + i);
    FloatVector sigmoid, slope;
    fast_sigmoid_slope(d, x, sigmoid, slope);
    const FloatVector to_silu = hn::Mul(gradient, lanes.load(b + i));
    lanes.store(hn::Mul(to_silu, hn::MulAdd(x, slope, sigmoid)), da + i);
    lanes.store(hn::Mul(gradient, hn::Mul(x, sigmoid)), db + i);
  });
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(activate_piece);
HWY_EXPORT(differentiate_piece);
HWY_EXPORT(swiglu_piece);
HWY_EXPORT(swiglu_backward_piece);

}  // namespace

void activation_forward(Context& context, View<float> y, View<const float> x, Activation activation) {
  assert(y.size() == x.size());
  const auto piece = HWY_DYNAMIC_DISPATCH(activate_piece);
  parallel_pieces(
      context, [&](std::int64_t n, float* to, const float* from) { piece(to, from, n, activation); }, y, x);
}

void activation_backward(Context& context, View<float> dx, View<const float> dy, View<const float> x,
                         Activation activation) {
  assert(dx.size() == x.size() && dy.size() == x.size());
  const auto piece = HWY_DYNAMIC_DISPATCH(differentiate_piece);
  parallel_pieces(
      context,
      [&](std::int64_t n, float* to, const float* gradient, const float* from) {
        piece(to, gradient, from, n, activation);
      },
      dx, dy, x);
}

void swiglu_forward(Context& context, View<float> y, View<const float> a, View<const float> b) {
  assert(y.size() == a.size() && y.size() == b.size());
  const auto piece = HWY_DYNAMIC_DISPATCH(swiglu_piece);
  parallel_pieces(
      context, [&](std::int64_t n, float* to, const float* p, const float* q) { piece(to, p, q, n); }, y, a,
      b);
}

void swiglu_backward(Context& context, View<float> da, View<float> db, View<const float> dy,
                     View<const float> a, View<const float> b) {
  assert(da.size() == a.size() && db.size() == a.size() && dy.size() == a.size() && b.size() == a.size());
  const auto piece = HWY_DYNAMIC_DISPATCH(swiglu_backward_piece);
  parallel_pieces(
      context,
      [&](std::int64_t n, float* to_a, float* to_b, const float* gradient, const float* p, const float* q) {
        piece(to_a, to_b, gradient, p, q, n);
      },
      da, db, dy, a, b);
}

}  // namespace linnet::kernels
#endif  // HWY_ONCE
