#include "bench/random_training.h"

#include <cmath>

#include "base/random.h"
#include "kernels/elementwise.h"
#include "model/config.h"
#include "training/config.h"

namespace linnet {
namespace {

const ModelConfig& checked(const char* operation, const ModelConfig& config) {
  check_one_token(operation, config);
  return config;
}

}  // namespace

RandomTraining::RandomTraining(const char* operation, Context& context, const RunConfig& config)
    : context_(context),
      model_(checked(operation, config.model)),
      options_(config.training),
      network_(model_, nullptr, options_.precision),
      values_(Tensor::of<float>({network_.table().size()})),
      gradients_(Tensor::of<float>({network_.table().size()})),
      optimiser_(network_.table(), options_),
      transformer_(network_, options_.batch, model_.length, bounds_of(options_)),
      ids_(static_cast<std::size_t>(options_.batch * model_.length)),
      targets_(ids_.size()) {
  network_.table().initialise(values_.span<float>(), 1);
  network_.pack(context_, values_.span<float>(), true);
  const Random random(1, Draw::test);
  const auto token = [&](std::size_t index) {
    return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(model_.vocabulary), index));
  };
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    ids_[i] = token(2 * i);
    targets_[i] = token(2 * i + 1);
  }
}

void RandomTraining::pass() {
  const Dropout dropout{static_cast<float>(model_.dropout), static_cast<std::uint64_t>(step_)};
  const Pass pass{.batch = options_.batch, .length = model_.length, .ids = ids_, .targets = targets_};
  transformer_.accumulate(context_, pass, 1 / static_cast<float>(ids_.size()), dropout,
                          gradients_.span<float>());
}

void RandomTraining::update() {
  const std::span<float> gradient = gradients_.span<float>(), values = values_.span<float>();
  const double norm = std::sqrt(kernels::sum_of_squares(context_, gradient));
  const double factor = options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1;
  ++step_;
  optimiser_.update(context_, values, gradient, static_cast<float>(factor), learning_rate(options_, step_),
                    step_);
  network_.pack(context_, values, true);
  kernels::set_zero(context_, gradient);
}

}  // namespace linnet
