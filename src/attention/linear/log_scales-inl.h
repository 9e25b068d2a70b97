// Log-scales in linear attention: what rows of features are to be multiplied by, e^scale, which floats need
// not hold. Include it inside a file that is compiled by hwy/foreach_target.h.

#if defined(LINNET_ATTENTION_LINEAR_LOG_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_ATTENTION_LINEAR_LOG_SCALES_INL_H_
#undef LINNET_ATTENTION_LINEAR_LOG_SCALES_INL_H_
#else
#define LINNET_ATTENTION_LINEAR_LOG_SCALES_INL_H_
#endif

#include <cmath>
#include <limits>
#include <vector>

#include "attention/linear/linear_tiles-inl.h"
#include "kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {

constexpr double kNoScale = -std::numeric_limits<double>::infinity();

/// e^x, infinite above about 88. Where sums are normalised, x is at most kMostScale but for rounding, and for
/// pairs that do not see each other.
HWY_INLINE Vec32 exp_of(Vec32 x) { return kernels::HWY_NAMESPACE::fast_exp(F32(), x); }
HWY_INLINE float exp_of(double x) { return hn::GetLane(exp_of(hn::Set(F32(), static_cast<float>(x)))); }

/// What a scale is subtracted as: nothing has a scale of −∞, and is 0 whatever is subtracted.
HWY_INLINE double finite_scale(double scale) { return scale == kNoScale ? 0 : scale; }

/// The largest of `scales` and `least`; NaN are passed over, since what they belong to is NaN by itself.
HWY_INLINE double largest_scale(const double* scales, std::size_t count, double least) {
  for (std::size_t i = 0; i < count; ++i)
    if (scales[i] > least) least = scales[i];
  return least;
}

/// to[i] = e^(scales[i] + shift), `count` rounded up to whole vectors.
inline HWY_NOINLINE void exp_rows(float* to, const double* scales, double shift, std::size_t count) {
  const F32 d;
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(scales[i] + shift);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) hn::Store(exp_of(hn::Load(d, to + i)), d, to + i);
}

/// The scales of the queries and the keys that a sweep has loaded; behind the last one they are −∞.
class LogScales {
 public:
  explicit LogScales(std::size_t chunk)
      : query(chunk, kNoScale), key(chunk, kNoScale), query_near_(chunk), key_near_(chunk) {}

  /// Of the rows `range` that were loaded; none behind them.
  void end_keys(Mask::Interval range) { end(key, range); }
  void end_queries(Mask::Interval range) { end(query, range); }

  /// To be called before `pair`: takes the scales as floats, of which the keys' are differences from the
  /// first one. The largest one would do as well, but for the bits of rows that see nothing of it yet.
  HWY_NOINLINE void settle() {
    const auto finite = [](double scale) { return std::isfinite(scale); };
    const auto first = std::find_if(key.begin(), key.end(), finite);
    const double middle = first == key.end() ? 0 : *first;
    for (std::size_t i = 0; i < query.size(); ++i) {
      query_near_[i] = static_cast<float>(query[i] + middle);
      key_near_[i] = static_cast<float>(key[i] - middle);
    }
  }

  /// e^(query i + key j) for a vector of keys from j on.
  HWY_INLINE Vec32 pair(std::size_t i, std::size_t j) const {
    const F32 d;
    return exp_of(hn::Add(hn::Set(d, query_near_[i]), hn::LoadU(d, key_near_.data() + j)));
  }

  /// weights [query, key] *= e^(query + key) on and below the diagonal; what is above it is not kept.
  HWY_NOINLINE void scale_triangle(float* HWY_RESTRICT weights, std::size_t ld, std::size_t rows) {
    const F32 d;
    settle();
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j <= i; j += hn::Lanes(d))
        hn::Store(hn::Mul(hn::Load(d, weights + i * ld + j), pair(i, j)), d, weights + i * ld + j);
  }

  std::vector<double> query, key;

 private:
  static void end(std::vector<double>& scales, Mask::Interval range) {
    for (auto i = static_cast<std::size_t>(range.end - range.begin); i < scales.size(); ++i)
      scales[i] = kNoScale;
  }

  std::vector<float> query_near_, key_near_;
};

}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
