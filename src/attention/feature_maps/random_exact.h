#pragma once

#include "attention/feature_maps/random_draws.h"

namespace linnet {

/// A random map in plain double precision: y [rows, F] and log_scale [rows] of x [rows, E].
void exact_random_features(RandomMap map, const RandomDraws& draws, double* y, double* log_scale,
                           const double* x, std::int64_t rows);

/// dx [rows, E] from dy [rows, F], e^s ∂L/∂φ.
void exact_random_gradient(RandomMap map, const RandomDraws& draws, double* dx, const double* dy,
                           const double* x, std::int64_t rows);

}  // namespace linnet
