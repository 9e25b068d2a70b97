#include "attention/feature_maps/random_exact.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "attention/feature_maps/random_kernels.h"

namespace linnet {
namespace {

double normal_cdf(double p) { return 0.5 * std::erfc(-p / std::numbers::sqrt2); }
double sigmoid(double p) { return 1 / (1 + std::exp(-p)); }

/// f of the general maps.
double general(RandomMap map, double p) {
  switch (map) {
    case RandomMap::relu:
      return std::max(p, 0.0);
    case RandomMap::gelu:
      return p * normal_cdf(p);
    case RandomMap::sigmoid:
      return sigmoid(p);
    case RandomMap::tanh:
      return std::tanh(p);
    case RandomMap::abs:
      return std::abs(p);
    default:
      return std::cos(p);
  }
}

double general_slope(RandomMap map, double p) {
  switch (map) {
    case RandomMap::relu:
      return p > 0 ? 1 : 0;
    case RandomMap::gelu:
      return normal_cdf(p) + p * std::exp(-p * p / 2) / std::sqrt(2 * std::numbers::pi);
    case RandomMap::sigmoid:
      return sigmoid(p) * sigmoid(-p);
    case RandomMap::tanh:
      return 1 - std::tanh(p) * std::tanh(p);
    case RandomMap::abs:
      return p > 0 ? 1 : p < 0 ? -1 : 0;
    default:
      return -std::sin(p);
  }
}

/// One row: its products with the directions, its features y and its log-scale.
struct ExactRow {
  ExactRow(RandomMap map, const RandomDraws& draws, const double* x)
      : dim(draws.head_dim),
        count(static_cast<std::int64_t>(draws.directions.size()) / dim),
        features(count * features_a_direction(map)),
        scale(1 / std::sqrt(std::sqrt(static_cast<double>(dim)))),
        p(static_cast<std::size_t>(count)),
        y(static_cast<std::size_t>(features)) {
    double half = 0;
    for (std::int64_t i = 0; i < dim; ++i) half += 0.5 * scale * scale * x[i] * x[i];
    for (std::int64_t r = 0; r < count; ++r) {
      double& product = p[static_cast<std::size_t>(r)];
      for (std::int64_t i = 0; i < dim; ++i) product += scale * draws.directions[r * dim + i] * x[i];
      if (map == RandomMap::trig) product += draws.phases[static_cast<std::size_t>(r)];
    }
    const bool waves = map == RandomMap::trig || map == RandomMap::sincos;
    factor = std::sqrt((waves ? 2.0 : 1.0) / static_cast<double>(features));
    const double top = *std::ranges::max_element(p);
    switch (map) {
      case RandomMap::favor: {
        const double most = top - RandomProjection::raised;
        log_scale = most - half;
        fill([&](double product) { return std::exp(product - most); });
        break;
      }
      case RandomMap::trig:
        log_scale = half;
        fill([](double product) { return std::cos(product); });
        break;
      case RandomMap::sincos:
        log_scale = half;
        fill([](double product) { return std::cos(product); },
             [](double product) { return std::sin(product); });
        break;
      case RandomMap::hyperbolic: {
        const double most = std::max(top, -*std::ranges::min_element(p)) - RandomProjection::raised;
        log_scale = most - half;
        fill([&](double product) { return std::exp(product - most); },
             [&](double product) { return std::exp(-product - most); });
        break;
      }
      case RandomMap::exp:
        log_scale = std::max(top, 0.0);
        fill([&](double product) {
          return std::exp(product - log_scale) + RandomProjection::least * std::exp(-log_scale);
        });
        break;
      default:
        fill([&](double product) { return general(map, product) + RandomProjection::least; });
    }
  }

  template <class... F>
  void fill(const F&... functions) {
    auto to = y.begin();
    (...,
     (to = std::ranges::transform(p, to, [&](double product) { return factor * functions(product); }).out));
  }

  std::int64_t dim, count, features;
  double scale;           // E^-1/4
  std::vector<double> p;  // w·x, and b of favor-trig
  std::vector<double> y;
  double factor = 0, log_scale = 0;
};

/// e^s ∂φ_f/∂p for the feature f made of the product p.
double slope(RandomMap map, const ExactRow& row, double p, double y, bool second) {
  switch (map) {
    case RandomMap::favor:
      return y;
    case RandomMap::hyperbolic:
      return second ? -y : y;
    case RandomMap::trig:
      return -row.factor * std::sin(p);
    case RandomMap::sincos:
      return second ? row.factor * std::cos(p) : -row.factor * std::sin(p);
    case RandomMap::exp:
      return row.factor * std::exp(p - row.log_scale);
    default:
      return row.factor * general_slope(map, p);
  }
}

/// What ‖x‖²/2 is multiplied by in the exponent.
double radial(RandomMap map) {
  if (map == RandomMap::favor || map == RandomMap::hyperbolic) return -1;
  return map == RandomMap::trig || map == RandomMap::sincos ? 1 : 0;
}

}  // namespace

void exact_random_features(RandomMap map, const RandomDraws& draws, View<double> y,
                           std::span<double> log_scale, View<const double> x) {
  for (std::int64_t r = 0; r < x.extent(0); ++r) {
    const ExactRow row(map, draws, x.at(r));
    std::ranges::copy(row.y, y.at(r));
    log_scale[static_cast<std::size_t>(r)] = row.log_scale;
  }
}

void exact_random_gradient(RandomMap map, const RandomDraws& draws, View<double> dx, View<const double> dy,
                           View<const double> x) {
  const std::int64_t dim = draws.head_dim;
  for (std::int64_t r = 0; r < x.extent(0); ++r) {
    const ExactRow row(map, draws, x.at(r));
    std::fill_n(dx.at(r), dim, 0.0);
    for (std::int64_t f = 0; f < row.features; ++f) {
      const std::int64_t direction = f % row.count;
      const double y = row.y[static_cast<std::size_t>(f)], p = row.p[static_cast<std::size_t>(direction)];
      const double of_p = dy(r, f) * slope(map, row, p, y, f >= row.count),
                   of_norm = dy(r, f) * y * radial(map);
      for (std::int64_t i = 0; i < dim; ++i)
        dx(r, i) +=
            row.scale * (of_p * draws.directions[direction * dim + i] + of_norm * row.scale * x(r, i));
    }
  }
}

}  // namespace linnet
