#include "base/random.h"

#include <array>
#include <cmath>
#include <numbers>

namespace linnet {

std::array<std::uint32_t, 4> Random::block(std::uint64_t index) const {
  std::array<std::uint32_t, 4> counter = {static_cast<std::uint32_t>(index),
                                          static_cast<std::uint32_t>(index >> 32), stream_, purpose_};
  std::uint32_t key0 = static_cast<std::uint32_t>(seed_);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
        static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

std::uint64_t Random::below(std::uint64_t bound, std::uint64_t index) const {
  const auto words = block(index);
  const std::uint64_t value = (std::uint64_t{words[0]} << 32) | words[1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(value) * bound) >> 64);
}

double Random::normal(std::uint64_t index) const {
  const auto words = block(index);
  const double u = (static_cast<double>(words[0]) + 0.5) * 0x1p-32;
  const double turn = (static_cast<double>(words[1]) + 0.5) * 0x1p-32;
  return std::sqrt(-2.0 * portable_log(u)) * portable_cos_turns(turn);
}

double portable_log(double x) {
  // x = m 2^e with m in [√½, √2); log m = 2 artanh t, t = (m - 1) / (m + 1), |t| < 0.172.
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1);
  const double t2 = t * t;
  double series = 0;
  for (int k = 21; k >= 3; k -= 2) series = (series + 1.0 / k) * t2;
  return exponent * std::numbers::ln2 + 2 * t * (1 + series);
}

double portable_cos_turns(double x) {
  // Folds onto [0, ¼], then takes the cosine of at most an eighth of a turn, or the sine of the rest.
  double sign = 1;
  if (x > 0.5) x = 1 - x;
  if (x > 0.25) {
    x = 0.5 - x;
    sign = -1;
  }
  const bool sine = x > 0.125;
  const double angle = 2 * std::numbers::pi * (sine ? 0.25 - x : x);
  const double a2 = angle * angle;
  double series = 1;
  for (int k = 20; k >= 2; k -= 2) {
    const double terms = sine ? k * (k + 1.0) : k * (k - 1.0);
    series = 1 - a2 / terms * series;
  }
  return sign * (sine ? angle * series : series);
}

}  // namespace linnet
