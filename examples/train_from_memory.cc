// Trains a small model on arrays of its own and prints the loss, which has to fall, and that of other
// examples.
//   train_from_memory
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "linnet/dataset.h"
#include "linnet/error.h"
#include "linnet/training.h"

namespace {

/// Numbers that count up or down from anywhere, modulo 10. The first two cannot be predicted and do not
/// count.
std::shared_ptr<const linnet::Dataset> numbers(std::int64_t examples, std::int64_t length, unsigned seed) {
  struct Memory {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> counted;
  };
  const auto memory = std::make_shared<Memory>();
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < examples; ++i) {
    std::int32_t number = random() % 10;
    const std::int32_t step = random() % 2 == 0 ? 1 : 9;
    for (std::int64_t t = 0; t < length; ++t, number = (number + step) % 10) {
      memory->tokens.push_back(number);
      memory->counted.push_back(t >= 2);
    }
  }
  return linnet::make_dataset({.tokens = {memory->tokens.data(), {examples, length}},
                               .counted = {memory->counted.data(), {examples, length}},
                               .fields = {10},
                               .owner = memory});
}

}  // namespace

int main() try {
  linnet::ModelConfig config;
  config.layers = config.heads = 2;
  config.width = 32;
  config.feed_forward = 64;
  config.length = 12;
  config.vocabulary = 10;
  linnet::TrainingOptions options;
  options.steps = 200;  // of the learning rate's schedule
  options.batch = 32;
  options.learning_rate = 0.005;
  linnet::Context context;
  linnet::Trainer trainer(context, config, options);

  const auto training = numbers(1000, config.length, 1), validation = numbers(100, config.length, 2);
  while (trainer.steps() < options.steps) {
    const linnet::StepReport report = trainer.step(*training);
    if (report.step % 20 == 0)
      std::printf("step %d: %.3f bits\n", static_cast<int>(report.step), report.bits);
  }
  const linnet::Evaluation evaluation =
      linnet::evaluate(context, *trainer.model(), *validation, 0, options.batch);
  std::printf("%d other numbers: %.3f bits\n", static_cast<int>(evaluation.tokens), evaluation.bits);
  return evaluation.bits < 0.5 ? 0 : 1;
} catch (const linnet::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
