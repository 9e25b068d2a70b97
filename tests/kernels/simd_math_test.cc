// The vector functions of kernels/simd_math-inl.h against the library's in double, on every target that was
// compiled and that this machine has.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_math_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd_math-inl.h"
#include "kernels/targets.h"
#include "support/numbers.h"
#include "support/portable_bits.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class F>
void apply(std::vector<float>& x, F f) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  x.resize((x.size() + lanes - 1) / lanes * lanes, 0.0f);
  for (std::size_t i = 0; i < x.size(); i += lanes) hn::StoreU(f(d, hn::LoadU(d, &x[i])), d, &x[i]);
}

std::int64_t target_in_use() { return HWY_TARGET; }

void exp_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) { return fast_exp(d, v); });
}
void log_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) { return fast_log(d, v); });
}
void log1p_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) { return fast_log1p01(d, v); });
}
void tanh_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) { return fast_tanh(d, v); });
}
void sigmoid_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) { return fast_sigmoid(d, v); });
}
void softplus_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) { return fast_softplus(d, v); });
}
void one_minus_exp_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) { return fast_one_minus_exp(d, v); });
}
void sin_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) {
    auto sine = v, cosine = v;
    fast_sin_cos(d, v, sine, cosine);
    return sine;
  });
}
void cos_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) {
    auto sine = v, cosine = v;
    fast_sin_cos(d, v, sine, cosine);
    return cosine;
  });
}
void density_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) {
    auto density = v, cdf = v;
    fast_normal(d, v, density, cdf);
    return density;
  });
}
void cdf_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) {
    auto density = v, cdf = v;
    fast_normal(d, v, density, cdf);
    return cdf;
  });
}
void near_gelu_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) { return near_gelu(d, v); });
}
void near_gelu_slope_all(std::vector<float>& x) {
  apply(x, [](auto d, auto v) {
    auto slope = v;
    near_gelu(d, v, slope);
    return slope;
  });
}

}  // namespace linnet::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet::kernels {
namespace {

HWY_EXPORT(target_in_use);
HWY_EXPORT(exp_all);
HWY_EXPORT(log_all);
HWY_EXPORT(log1p_all);
HWY_EXPORT(tanh_all);
HWY_EXPORT(sigmoid_all);
HWY_EXPORT(softplus_all);
HWY_EXPORT(one_minus_exp_all);
HWY_EXPORT(sin_all);
HWY_EXPORT(cos_all);
HWY_EXPORT(density_all);
HWY_EXPORT(cdf_all);
HWY_EXPORT(near_gelu_all);
HWY_EXPORT(near_gelu_slope_all);

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> evenly(float begin, float end, int count) {
  std::vector<float> x(count);
  for (int i = 0; i < count; ++i) x[i] = begin + (end - begin) * (static_cast<float>(i) / (count - 1));
  return x;
}

std::vector<float> geometrically(float begin, float end, int count) {
  std::vector<float> x(count);
  for (int i = 0; i < count; ++i)
    x[i] = static_cast<float>(begin * std::pow(double(end) / begin, i / (count - 1.0)));
  return x;
}

// Largest of |f(x) − expected(x)| / scale(expected), NaN where one is.
template <class F, class E, class S>
double worst(const std::vector<float>& x, F f, E expected, S scale) {
  std::vector<float> y = x;
  f(y);
  double result = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double e = expected(double(x[i]));
    result = larger(result, std::abs(y[i] - e) / scale(e));
  }
  return result;
}

double itself(double e) { return std::abs(e); }
double one(double) { return 1; }

float at(void (*f)(std::vector<float>&), float x) {
  std::vector<float> y = {x};
  f(y);
  return y[0];
}

TEST(InstructionSet, IsTheOneThatKernelsAreDispatchedTo) {
  for (int time = 0; time < 2; ++time) {
    const std::string name = instruction_set();
    EXPECT_EQ(hwy::TargetName(HWY_DYNAMIC_DISPATCH(target_in_use)()), name);
  }
}

TEST(SimdMath, ExpIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(exp_all);
    const auto e = [](double x) { return std::exp(x); };
    EXPECT_LT(worst(evenly(-86.9f, 88.7f, 200001), f, e, itself), 2e-7);
    EXPECT_LT(worst(evenly(-1, 1, 20001), f, e, itself), 2e-7);
    EXPECT_EQ(at(f, 0), 1);
    EXPECT_EQ(at(f, -87.4f), 0);
    EXPECT_EQ(at(f, -1e30f), 0);
    EXPECT_EQ(at(f, -infinity), 0);
    EXPECT_EQ(at(f, 89), infinity);
    EXPECT_EQ(at(f, 1e30f), infinity);
    EXPECT_EQ(at(f, infinity), infinity);
    EXPECT_TRUE(std::isnan(at(f, nan)));
  });
}

TEST(SimdMath, LogIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(log_all);
    const auto e = [](double x) { return std::log(x); };
    EXPECT_LT(worst(geometrically(1e-44f, 3e38f, 200001), f, e, itself), 3e-7);
    EXPECT_LT(worst(evenly(0.6f, 1.5f, 100001), f, e, [](double y) { return std::abs(y) + 1e-30; }), 3e-7);
    EXPECT_EQ(at(f, 1), 0);
    EXPECT_EQ(at(f, 0), -infinity);
    EXPECT_EQ(at(f, infinity), infinity);
    EXPECT_TRUE(std::isnan(at(f, -1)));
    EXPECT_TRUE(std::isnan(at(f, nan)));
  });
}

TEST(SimdMath, Log1pIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(log1p_all);
    const auto e = [](double x) { return std::log1p(x); };
    EXPECT_LT(worst(geometrically(1e-30f, 1, 100001), f, e, itself), 3e-7);
    EXPECT_LT(worst(evenly(0.001f, 1, 100001), f, e, itself), 3e-7);
    EXPECT_EQ(at(f, 0), 0);
  });
}

TEST(SimdMath, TanhIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(tanh_all);
    const auto e = [](double x) { return std::tanh(x); };
    EXPECT_LT(worst(evenly(-12, 12, 200000), f, e, itself), 4e-7);
    EXPECT_LT(worst(geometrically(1e-30f, 1, 10000), f, e, itself), 4e-7);
    EXPECT_EQ(at(f, infinity), 1);
    EXPECT_EQ(at(f, -infinity), -1);
    EXPECT_TRUE(std::isnan(at(f, nan)));
  });
}

TEST(SimdMath, SigmoidIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(sigmoid_all);
    EXPECT_LT(worst(
                  evenly(-86, 100, 200001), f, [](double x) { return 1 / (1 + std::exp(-x)); }, itself),
              4e-7);
    EXPECT_EQ(at(f, -infinity), 0);
    EXPECT_EQ(at(f, infinity), 1);
    EXPECT_TRUE(std::isnan(at(f, nan)));
  });
}

TEST(SimdMath, SoftplusIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(softplus_all);
    const auto e = [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); };
    EXPECT_LT(worst(evenly(-86, 100, 200001), f, e, itself), 5e-7);
    EXPECT_EQ(at(f, infinity), infinity);
    EXPECT_EQ(at(f, -infinity), 0);
    EXPECT_TRUE(std::isnan(at(f, nan)));
  });
}

TEST(SimdMath, OneMinusExpIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(one_minus_exp_all);
    EXPECT_LT(worst(
                  geometrically(1e-30f, 50, 100001), f, [](double x) { return -std::expm1(-x); }, itself),
              6e-7);
    EXPECT_EQ(at(f, 0), 0);
    EXPECT_EQ(at(f, infinity), 1);
  });
}

TEST(SimdMath, NormalDistributionIsAccurate) {
  for_every_target([] {
    const auto density = HWY_DYNAMIC_DISPATCH(density_all);
    const auto cdf = HWY_DYNAMIC_DISPATCH(cdf_all);
    const auto expected = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
    const auto expected_density = [](double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); };
    EXPECT_LT(worst(evenly(-20, 20, 200001), density, expected_density, one), 3.5e-7);
    EXPECT_LT(worst(evenly(-5, 5, 200001), density, expected_density, itself), 1.2e-6);
    EXPECT_LT(worst(evenly(-20, 20, 200001), cdf, expected, one), 3.5e-7);
    EXPECT_LT(worst(evenly(-5, 5, 200001), cdf, expected, itself), 1.2e-6);
    // The errors are largest near 0.
    EXPECT_LT(worst(evenly(-0.25f, 0.25f, 400001), cdf, expected, one), 3.5e-7);
    EXPECT_TRUE(std::isnan(at(cdf, nan)));
    EXPECT_EQ(at(cdf, infinity), 1);
    EXPECT_EQ(at(cdf, -infinity), 0);
    EXPECT_EQ(at(density, infinity), 0);
  });
}

TEST(SimdMath, NearGeluIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(near_gelu_all);
    const auto expected = [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); };
    EXPECT_LT(worst(evenly(-7, 7, 200001), f, expected, one), 1e-6);
    EXPECT_LT(worst(geometrically(1e-30f, 1, 10001), f, expected, itself), 1e-4);
    EXPECT_EQ(at(f, 0), 0);
    EXPECT_EQ(at(f, 5.5f), 5.5f);
    EXPECT_EQ(at(f, -5.5f), 0);
    EXPECT_EQ(at(f, infinity), infinity);
    EXPECT_TRUE(std::isnan(at(f, nan)));
  });
}

TEST(SimdMath, SlopeOfNearGeluIsAccurate) {
  for_every_target([] {
    const auto f = HWY_DYNAMIC_DISPATCH(near_gelu_slope_all);
    const auto expected = [](double x) {
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
    };
    EXPECT_LT(worst(evenly(-7, 7, 200001), f, expected, one), 2e-5);
    EXPECT_EQ(at(f, 0), 0.5f);
    EXPECT_EQ(at(f, 5.5f), 1);
    EXPECT_EQ(at(f, -5.5f), 0);
    EXPECT_EQ(at(f, infinity), 1);
    EXPECT_EQ(at(f, -infinity), 0);
    EXPECT_TRUE(std::isnan(at(f, nan)));
  });
}

TEST(SimdMath, SineAndCosineAreAccurate) {
  for_every_target([] {
    const auto sin = HWY_DYNAMIC_DISPATCH(sin_all);
    const auto cos = HWY_DYNAMIC_DISPATCH(cos_all);
    const auto expected_sin = [](double x) { return std::sin(x); };
    const auto expected_cos = [](double x) { return std::cos(x); };
    for (const float range : {1.0f, 10.0f, 1e3f, 1e4f}) {
      EXPECT_LT(worst(evenly(-range, range, 200001), sin, expected_sin, one), 2e-7) << range;
      EXPECT_LT(worst(evenly(-range, range, 200001), cos, expected_cos, one), 2e-7) << range;
    }
    EXPECT_LT(worst(geometrically(1e-30f, 0.1f, 10001), sin, expected_sin, itself), 2e-7);
    EXPECT_EQ(at(sin, 0), 0);
    EXPECT_EQ(at(cos, 0), 1);
    for (const float far : {1e6f, -1e12f, 3e38f}) {
      EXPECT_LE(std::abs(at(sin, far)), 1);
      EXPECT_LE(std::abs(at(cos, far)), 1);
    }
    EXPECT_TRUE(std::isnan(at(sin, nan)));
    EXPECT_TRUE(std::isnan(at(cos, infinity)));
  });
}

/// A grid over [begin, end], and numbers of either sign that grow from 1e-30 until they leave it.
std::vector<float> portable_grid(float begin, float end) {
  std::vector<float> x = evenly(begin, end, 4001);
  for (const float sign : {1.0f, -1.0f})
    for (float size = sign * 1e-30f; size >= begin && size <= end; size *= 1.4375f) x.push_back(size);
  return x;
}

struct MathBits {
  const char* name;
  float begin, end;
  void (*function)(std::vector<float>&);
  std::uint64_t fused, unfused;  ///< with and without fused multiply-add: lanes do not meet
};

// On every target that was compiled and that this machine has.
TEST(PortableBits, VectorMathematics) {
  for_every_target([] {
    for (const MathBits& math : {
             MathBits{"exp", -90, 90, HWY_DYNAMIC_DISPATCH(exp_all), 0x01ca0d9dca4dea13, 0xf214fa3d5931e2cb},
             MathBits{"log", 0, 1e30f, HWY_DYNAMIC_DISPATCH(log_all), 0x33763992f3f2ee27, 0x33763992f3f2ee27},
             MathBits{"log1p", 0, 1, HWY_DYNAMIC_DISPATCH(log1p_all), 0xb7074369dca81825, 0x6abc05976a36b7e8},
             MathBits{"tanh", -12, 12, HWY_DYNAMIC_DISPATCH(tanh_all), 0xc491fedbba3b68c1,
                      0x1df50535b3d7c289},
             MathBits{"sigmoid", -90, 90, HWY_DYNAMIC_DISPATCH(sigmoid_all), 0xf3330fbea1869f49,
                      0xd752c0286b860f4f},
             MathBits{"softplus", -90, 90, HWY_DYNAMIC_DISPATCH(softplus_all), 0xf533b148621e126a,
                      0x1a95cd4be85e1172},
             MathBits{"1 - exp(-x)", 0, 90, HWY_DYNAMIC_DISPATCH(one_minus_exp_all), 0x0587a70b60c1aac6,
                      0x35827f191a478ad8},
             MathBits{"sin", -1e4f, 1e4f, HWY_DYNAMIC_DISPATCH(sin_all), 0x22dec0c9a7650f6a,
                      0xb509fda69c4c93fc},
             MathBits{"cos", -1e4f, 1e4f, HWY_DYNAMIC_DISPATCH(cos_all), 0xb854faa6a3a0dc76,
                      0xf97360995587b8fd},
             MathBits{"normal cdf", -20, 20, HWY_DYNAMIC_DISPATCH(cdf_all), 0x374a838053befacd,
                      0xbc204c077d33e580},
             MathBits{"near GELU", -7, 7, HWY_DYNAMIC_DISPATCH(near_gelu_all), 0xd60df3d88e4ba01a,
                      0x4db9293cc625057c},
         }) {
      const std::vector<float> x = portable_grid(math.begin, math.end);
      std::vector<float> y = x;
      math.function(y);
      y.resize(x.size());
      expect_bits(math.name, BitHash().add(y), {math.fused, math.fused, math.unfused, math.unfused},
                  hwy::TargetName(hwy::SupportedTargets()));
    }
  });
}

}  // namespace
}  // namespace linnet::kernels
#endif
