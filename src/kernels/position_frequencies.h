#pragma once

#include <cmath>
#include <cstdint>

namespace linnet::kernels {

/// An unevaluated sum of two doubles, about 106 bits (Dekker 1971): positions up to 2^40 times a frequency
/// that is only a double would be off by 10^-4 turns.
struct Twofold {
  double high = 0, low = 0;
};

inline Twofold normalised(double high, double low) {
  const double sum = high + low;
  return {sum, low - (sum - high)};
}

inline Twofold operator*(Twofold a, Twofold b) {
  const double product = a.high * b.high;
  return normalised(product, std::fma(a.high, b.high, -product) + (a.high * b.low + a.low * b.high));
}

inline Twofold power(Twofold base, std::int64_t exponent) {
  Twofold result{1, 0};
  for (; exponent > 0; exponent /= 2, base = base * base)
    if (exponent % 2 == 1) result = result * base;
  return result;
}

/// 10000^(-2/d), by Newton's iteration for x^d = 10^-8 in the form x (1 + (1 − 10^8 x^d) / d): the ratio of
/// the frequencies of sinusoidal and of rotary positions.
inline Twofold frequency_ratio(std::int64_t d) {
  Twofold x{std::pow(1e4, -2.0 / static_cast<double>(d)), 0};
  for (int i = 0; i < 2; ++i) {
    const Twofold y = power(x, d) * Twofold{1e8, 0};
    const double error = (1 - y.high) - y.low;
    x = normalised(x.high, x.low + x.high * error / static_cast<double>(d));
  }
  return x;
}

/// 1/(2π).
inline constexpr Twofold turns_per_radian{0.15915494309189535, -9.839338337591243e-18};

}  // namespace linnet::kernels
