#pragma once

#include "linnet/feature_map.h"

namespace linnet {

/// A built-in map that besides the tiles knows itself in double precision, for the references.
class ExactMap {
 public:
  virtual ~ExactMap() = default;

  /// y [rows, F] and log_scale [rows], φ = e^s y with s = 0 for maps without one, from x [rows, head_dim].
  virtual void exact_features(double* y, double* log_scale, const double* x, std::int64_t rows,
                              std::int64_t head_dim) const = 0;

  /// dx [rows, head_dim] from dy [rows, F], e^s ∂L/∂φ.
  virtual void exact_gradient(double* dx, const double* dy, const double* x, std::int64_t rows,
                              std::int64_t head_dim) const = 0;
};

/// φ of `rows` rows of `head_dim` doubles, y [rows, F]. With `log_scale` [rows], φ = e^s y, s = 0 for maps
/// without log-scales; where it is null, y = φ. A map that does not know itself in double precision works in
/// f32.
void reference_features(const FeatureMap& map, double* y, double* log_scale, const double* x,
                        std::int64_t rows, std::int64_t head_dim, const TileContext& context);

/// dx [rows, head_dim] from dy [rows, F], which is e^s ∂L/∂φ, with the s of `reference_features`.
void reference_features_backward(const FeatureMap& map, double* dx, const double* dy, const double* x,
                                 std::int64_t rows, std::int64_t head_dim, const TileContext& context);

}  // namespace linnet
