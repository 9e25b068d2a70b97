#include "training/optimiser.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/optimiser.h"

namespace linnet {

double learning_rate(const TrainingOptions& options, std::int64_t step) {
  const double highest = options.learning_rate;
  if (step <= options.warmup)
    return highest * static_cast<double>(step) / static_cast<double>(options.warmup);
  switch (options.schedule) {
    case Schedule::constant:
      break;
    case Schedule::step:
      return step <= options.step_at ? highest : highest * options.final_rate;
    case Schedule::inverse_sqrt:
      return highest * std::sqrt(static_cast<double>(std::max<std::int64_t>(options.warmup, 1)) /
                                 static_cast<double>(step));
    case Schedule::cosine: {
      const double length = static_cast<double>(std::max<std::int64_t>(options.steps - options.warmup, 1));
      const double progress = std::min(1.0, static_cast<double>(step - options.warmup) / length);
      const double share = 0.5 * (1 + std::cos(std::numbers::pi * progress));
      return highest * (options.final_rate + (1 - options.final_rate) * share);
    }
  }
  return highest;
}

Optimiser::Optimiser(const ParameterTable& table, const TrainingOptions& options)
    : table_(table),
      options_(options),
      m_(Tensor::of<float>({table.size()})),
      v_(Tensor::of<float>({table.size()})) {}

void Optimiser::update(Context& context, std::span<float> parameters, std::span<const float> gradients,
                       float factor, double rate, std::int64_t step) {
  kernels::AdamStep settings{.learning_rate = static_cast<float>(rate),
                             .beta1 = static_cast<float>(options_.beta1),
                             .beta2 = static_cast<float>(options_.beta2),
                             .epsilon = static_cast<float>(options_.epsilon),
                             .weight_decay = 0,
                             .step = step,
                             .factor = factor};
  const auto update =
      options_.optimiser == OptimiserKind::radam ? kernels::radam_update : kernels::adamw_update;
  for (const ParameterTable::Row& row : table_.rows()) {
    settings.weight_decay = row.weight_decay ? static_cast<float>(options_.weight_decay) : 0;
    const auto part = [&](auto all) {
      return all.subspan(static_cast<std::size_t>(row.place.offset()), static_cast<std::size_t>(row.count));
    };
    update(context, part(parameters), part(m_.span<float>()), part(v_.span<float>()), part(gradients),
           settings);
  }
}

}  // namespace linnet
