#pragma once

#include "attention/feature_maps/random_draws.h"
#include "linnet/context.h"
#include "linnet/tensor.h"

namespace linnet {

/// The draws of a map as its kernels read them: packed once, E^-1/4 multiplied in.
class RandomProjection {
 public:
  static constexpr std::int64_t tile_rows = 32;  ///< projected together
  static constexpr double least = 1e-3;          ///< ε of the general maps
  /// The largest feature of a row of the positive maps is e^raised/√F, and its log-scale is smaller by that.
  /// The largest feature of a query and that of a key belong to different directions: where norms are large
  /// the products of the two rows are far below the largest that there could be, and count down to e^-111 of
  /// it. Sums over 10^7 keys with values of 10^6 stay below e^88, where f32 ends.
  static constexpr double raised = 28;

  RandomProjection(RandomMap map, const RandomDraws& draws);

  RandomMap map;
  std::int64_t head_dim;     ///< E
  std::int64_t directions;   ///< m
  std::int64_t features;     ///< F
  std::int64_t padded_dim;   ///< E, padded to whole vectors with zeros
  bool structured;           ///< Hadamard directions with a fast transform
  std::int64_t padded_rows;  ///< m, padded like E; if structured, to whole blocks
  Tensor across;             ///< [E, padded m]: x's products with all directions; none if structured
  Tensor along;              ///< [m, padded E]: sums of directions; the same
  Tensor signs;              ///< [blocks, 3, E], if structured
  Tensor small;              ///< [blocks, E], if structured: the first signs over the power of two in E^(3/2)
  Tensor lengths;        ///< [padded m], if structured: those of the directions over what is left of E^(3/2)
  Tensor small_lengths;  ///< [padded m], if structured: those over E^(3/2)
  Tensor phases;         ///< [padded m], for favor-trig
  double square_scale;   ///< ‖x E^-1/4‖² = square_scale ‖x‖²
};

/// y [rows, F] and, for the maps that have them, log_scale [rows] of x [rows, E]. `own` is the calling
/// thread's context; null: the working memory is allocated.
void random_features(Context* own, const RandomProjection& projection, View<float> y, double* log_scale,
                     View<const float> x);

/// dx [rows, E] from dy [rows, F], e^s ∂L/∂φ, and from x and y as in `random_features`. dx may be dy.
void random_features_backward(Context* own, const RandomProjection& projection, View<float> dx,
                              View<const float> dy, View<const float> x, View<const float> y);

}  // namespace linnet
