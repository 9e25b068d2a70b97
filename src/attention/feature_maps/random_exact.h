#pragma once

#include "attention/feature_maps/random_draws.h"

namespace linnet {

/// A random map in plain double precision: y [rows, F] and log_scale [rows] of x [rows, E].
void exact_random_features(RandomMap map, const RandomDraws& draws, View<double> y,
                           std::span<double> log_scale, View<const double> x);

/// dx [rows, E] from dy [rows, F], e^s ∂L/∂φ.
void exact_random_gradient(RandomMap map, const RandomDraws& draws, View<double> dx, View<const double> dy,
                           View<const double> x);

}  // namespace linnet
