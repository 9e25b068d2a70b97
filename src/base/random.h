#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace linnet {

/// What random numbers are drawn for. Every purpose has its own sequence, so that adding a draw to one
/// never changes another.
enum class Draw : std::uint32_t {
  initial_weights,
  dropout,
  batches,
  sampling,
  synthetic_data,
  test,
  rotations,
  random_features
};

/// Counter-based generator (Philox 4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
/// 2011). A number is a pure function of (seed, purpose, stream, index): nothing is stored, any number can be
/// drawn in any order on any thread, and every machine draws the same.
class Random {
 public:
  Random(std::uint64_t seed, Draw purpose, std::uint32_t stream = 0)
      : seed_(seed), purpose_(static_cast<std::uint32_t>(purpose)), stream_(stream) {}

  /// Four independent words.
  std::array<std::uint32_t, 4> block(std::uint64_t index) const;

  /// 32 random bits.
  std::uint32_t bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }

  /// Uniform in the open interval (0, 1): an odd multiple of 2^-24.
  float uniform(std::uint64_t index) const {
    return (static_cast<float>(bits(index) >> 9) + 0.5f) * 0x1p-23f;
  }

  /// Uniform in {0, …, bound - 1}, bound at least 1.
  std::uint64_t below(std::uint64_t bound, std::uint64_t index) const;

  /// Standard normal (Box and Muller, 1958), with our own logarithm and cosine.
  double normal(std::uint64_t index) const;

 private:
  std::uint64_t seed_;
  std::uint32_t purpose_;
  std::uint32_t stream_;
};

/// Natural logarithm of x > 0 and cosine of 2πx for x in [0, 1): the same bits on every machine, error below
/// 4 ulp of 1 (cosine) and of the result (logarithm).
double portable_log(double x);
double portable_cos_turns(double x);

}  // namespace linnet
