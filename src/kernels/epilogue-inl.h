// What follows a product, for rows of its sums. Included like simd_math-inl.h.

#if defined(LINNET_KERNELS_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_EPILOGUE_INL_H_
#undef LINNET_KERNELS_EPILOGUE_INL_H_
#else
#define LINNET_KERNELS_EPILOGUE_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/activation-inl.h"
#include "kernels/dense.h"
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {

/// What an epilogue has beside a bias and an activation. Loops over a row that know it ask nothing within.
enum class Beside { nothing, rounded_slope, rounded_factor, residual, anything };

HWY_INLINE Beside beside_of(const Epilogue::Row& end) {
  const bool slope = end.rounded_slope != nullptr, factor = end.rounded_factor != nullptr,
             residual = end.residual != nullptr;
  if (end.slope != nullptr || end.factor != nullptr || slope + factor + residual > 1) return Beside::anything;
  return slope      ? Beside::rounded_slope
         : factor   ? Beside::rounded_factor
         : residual ? Beside::residual
                    : Beside::nothing;
}

/// f(x) and f'(x), of GELU with small absolute errors where `near`.
template <Activation activation, bool near>
HWY_INLINE FloatVector activate_with_slope(FloatVector x, FloatVector& slope) {
  if constexpr (near && activation == Activation::gelu)
    return near_gelu(FloatTag(), x, slope);
  else
    return activate<activation>(FloatTag(), x, slope);
}

/// What `end` makes of a product's numbers x at column j; `near` is for GELU with a small absolute error.
template <Activation activation, bool near, Beside beside, class Lanes>
HWY_INLINE FloatVector finish_product(Lanes lanes, FloatVector x, const Epilogue::Row& end, std::int64_t j) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  constexpr bool any = beside == Beside::anything;
  if (end.bias != nullptr) x = hn::Add(x, lanes.load(end.bias + j));
  if (beside == Beside::rounded_slope || (any && end.rounded_slope != nullptr)) {
    FloatVector slope;
    x = activate_with_slope<activation, near>(x, slope);
    lanes.template store<near>(slope, end.rounded_slope + j);
  } else if (any && end.slope != nullptr) {
    FloatVector slope;
    x = activate_with_slope<activation, near>(x, slope);
    lanes.store(slope, end.slope + j);
  } else if constexpr (near && activation == Activation::gelu) {
    x = near_gelu(d, x);
  } else {
    x = activate<activation>(d, x);
  }
  if (any && end.factor != nullptr) x = hn::Mul(x, lanes.load(end.factor + j));
  if (beside == Beside::rounded_factor || (any && end.rounded_factor != nullptr))
    x = hn::Mul(x, lanes.load(end.rounded_factor + j));
  if (beside == Beside::residual || (any && end.residual != nullptr))
    x = hn::Add(x, lanes.load(end.residual + j));
  return x;
}

/// `rows` rows of n numbers, `stride` apart, f32 or rounded, = what `end` and the rows below it say after
/// load(lanes, row, j), the sums.
template <Activation activation, bool near, Beside beside, class T, class Load>
HWY_INLINE void finish_rows(T* to, std::int64_t stride, std::int64_t rows, std::int64_t n, Epilogue::Row end,
                            const Epilogue::Steps& steps, const Load& load) {
  for (std::int64_t r = 0; r < rows; ++r, to += stride, end.advance(steps)) {
    for_vectors(n, [&](auto lanes, std::int64_t j) HWY_ATTR {
      const FloatVector sums = load(lanes, r, j);
      lanes.template store<near>(finish_product<activation, near, beside>(lanes, sums, end, j), to + j);
    });
  }
}

/// The same for whatever the rows have beside a bias.
template <Activation activation, bool near, class T, class Load>
HWY_INLINE void finish_rows(T* to, std::int64_t stride, std::int64_t rows, std::int64_t n,
                            const Epilogue::Row& end, const Epilogue::Steps& steps, const Load& load) {
  const auto run = [&](auto beside) HWY_ATTR {
    finish_rows<activation, near, decltype(beside)::value>(to, stride, rows, n, end, steps, load);
  };
  // Slopes are those of activations; gradients have no activation.
  constexpr bool active = activation != Activation::none;
  switch (beside_of(end)) {
    case Beside::nothing:
      return run(std::integral_constant<Beside, Beside::nothing>());
    case Beside::rounded_slope:
      if constexpr (active) return run(std::integral_constant<Beside, Beside::rounded_slope>());
      break;
    case Beside::rounded_factor:
      if constexpr (!active) return run(std::integral_constant<Beside, Beside::rounded_factor>());
      break;
    case Beside::residual:
      if constexpr (!active) return run(std::integral_constant<Beside, Beside::residual>());
      break;
    case Beside::anything:
      break;
  }
  run(std::integral_constant<Beside, Beside::anything>());
}

/// Calls body(activation) with a compile-time constant.
template <class Body>
HWY_INLINE auto with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::none:
      return body(std::integral_constant<Activation, Activation::none>());
    case Activation::relu:
      return body(std::integral_constant<Activation, Activation::relu>());
    case Activation::gelu:
      return body(std::integral_constant<Activation, Activation::gelu>());
    case Activation::gelu_tanh:
      return body(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::swiglu:
      break;
  }
  return body(std::integral_constant<Activation, Activation::swiglu>());
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
