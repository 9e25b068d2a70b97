#include "layers/value_head.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "kernels/loss.h"

namespace linnet {
namespace {

constexpr double initial_deviation = 0.02;
constexpr double initial_freedom = 5;  // ν of Student's t

}  // namespace

ValueHead::ValueHead(ParameterTable& table, const std::string& name, std::int64_t width, std::int64_t targets,
                     ValueDistribution distribution)
    : targets_(targets),
      distribution_(distribution),
      projection_(table, name, width, kernels::value_parameters(distribution) * targets,
                  {.bias = true,
                   .weight_initial = normal(initial_deviation),
                   .bias_initial =
                       [targets](std::int64_t i, double) {
                         return i < 2 * targets ? 0 : static_cast<float>(std::log(initial_freedom - 1));
                       },
                   .exact = true}) {}

void ValueHead::loss(Context& context, std::span<float> nll, View<float> dparameters,
                     View<const float> parameters, View<const float> targets, float weight) const {
  kernels::value_loss(context, nll, dparameters, parameters, targets, distribution_, weight);
}

void ValueHead::densities(const Columns& columns, View<float> mean, View<float> scale, View<float> freedom,
                          View<const float> parameters, View<const float> values) const {
  for (std::int64_t i = 0; i < mean.extent(0); ++i)
    for (std::int64_t t = 0; t < targets_; ++t) {
      const float* row = parameters.at(i) + t;
      mean(i, t) = row[0];
      scale(i, t) = scale_of(row) * columns.deviation(t);
      freedom(i, t) = distribution_ == ValueDistribution::student_t ? freedom_of(row)
                                                                    : std::numeric_limits<float>::infinity();
    }
  columns.restore(mean, mean, values);
}

float ValueHead::scale_of(const float* row) const {
  if (distribution_ == ValueDistribution::squared_error) return 1;
  return std::exp(std::clamp(row[targets_], kernels::least_log_scale, kernels::most_log_scale));
}

float ValueHead::freedom_of(const float* row) const {
  return 1 + std::exp(std::clamp(row[2 * targets_], kernels::least_log_freedom, kernels::most_log_freedom));
}

void ValueHead::sample(std::span<float> numbers, View<const float> parameters, std::span<const float> uniform,
                       float temperature) const {
  for (std::int64_t t = 0; t < targets_; ++t) {
    const float* row = parameters.data() + t;
    const double u1 = uniform[static_cast<std::size_t>(2 * t)],
                 u2 = uniform[static_cast<std::size_t>(2 * t + 1)];
    const double direction = portable_cos_turns(u2);
    double z = std::sqrt(-2 * portable_log(u1)) * direction;
    if (distribution_ == ValueDistribution::student_t) {
      // Bailey 1994, "Polar generation of random variates with the t-distribution".
      const double nu = freedom_of(row);
      z = std::sqrt(nu * (std::pow(u1, -2 / nu) - 1)) * direction;
    }
    numbers[static_cast<std::size_t>(t)] = static_cast<float>(row[0] + temperature * scale_of(row) * z);
  }
}

}  // namespace linnet
