#pragma once

namespace linnet {

/// A factor of at most 1 that is multiplied in again and again: neither its own rounding to f32 nor that of
/// its products may count. factor · x = kept · x − lost · x, where kept · x is x itself for factors from a
/// half on, and what is left of a smaller one forgets roundings by itself.
struct Fade {
  /// Sums below it are multiplied as they are, which rounds: lost · x would be 0 for the smallest of them,
  /// and they would never fade away.
  static constexpr float least = 0x1p-96f;

  float factor = 1.0f, kept = 1.0f, lost = 0.0f;

  static Fade of(double factor) {
    const float rounded = static_cast<float>(factor);
    if (factor >= 0.5) return {rounded, 1.0f, static_cast<float>(1 - factor)};
    return {rounded, rounded, static_cast<float>(static_cast<double>(rounded) - factor)};
  }
};

}  // namespace linnet
