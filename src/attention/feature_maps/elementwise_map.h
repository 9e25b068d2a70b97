#pragma once

#include "linnet/feature_map.h"

namespace linnet {

/// A built-in map that acts on every number alone. Besides the tiles it knows itself in double precision, for
/// the references.
class ElementwiseMap : public FeatureMap {
 public:
  virtual double exact(double x) const = 0;
  virtual double exact_slope(double x) const = 0;
};

/// φ of `rows` rows of `head_dim` doubles, y [rows, F], and their log-scales [rows], 0 for a map that has
/// none. A map that does not know itself in double precision works in f32.
void reference_features(const FeatureMap& map, double* y, double* log_scale, const double* x,
                        std::int64_t rows, std::int64_t head_dim, const TileContext& context);

/// dx [rows, head_dim] from dy [rows, F], which with log-scales s is e^s times the gradient of the features.
void reference_features_backward(const FeatureMap& map, double* dx, const double* dy, const double* x,
                                 std::int64_t rows, std::int64_t head_dim, const TileContext& context);

}  // namespace linnet
