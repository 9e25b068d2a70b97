#pragma once

#include "attention/feature_maps/exact_map.h"

namespace linnet {

/// A built-in map that acts on every number alone.
class ElementwiseMap : public FeatureMap, public ExactMap {
 public:
  virtual double exact(double x) const = 0;
  virtual double exact_slope(double x) const = 0;

  void exact_features(double* y, double* log_scale, const double* x, std::int64_t rows,
                      std::int64_t head_dim) const override;
  void exact_gradient(double* dx, const double* dy, const double* x, std::int64_t rows,
                      std::int64_t head_dim) const override;
};

}  // namespace linnet
