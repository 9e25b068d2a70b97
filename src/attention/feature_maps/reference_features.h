#pragma once

#include "linnet/feature_map.h"

namespace linnet {

/// φ of `rows` rows of `head_dim` doubles, y [rows, F]. With `log_scale` [rows], φ = e^s y; where it is null,
/// y = φ.
void reference_features(const FeatureMap& map, double* y, double* log_scale, const double* x,
                        std::int64_t rows, std::int64_t head_dim, const TileContext& context);

/// dx [rows, head_dim] from dy [rows, F], which is e^s ∂L/∂φ, with the s of `reference_features`.
void reference_features_backward(const FeatureMap& map, double* dx, const double* dy, const double* x,
                                 std::int64_t rows, std::int64_t head_dim, const TileContext& context);

}  // namespace linnet
