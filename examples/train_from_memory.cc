// Trains a small model on arrays of its own and prints the loss, which has to fall.
//   train_from_memory
#include <cstdio>
#include <random>
#include <vector>

#include "linnet/error.h"
#include "linnet/training.h"

int main() try {
  const std::int64_t examples = 32, length = 12;
  linnet::ModelConfig config;
  config.layers = config.heads = 2;
  config.width = 32;
  config.feed_forward = 64;
  config.length = length;
  config.vocabulary = 10;
  linnet::TrainingOptions options;
  options.steps = 200;  // of the learning rate's schedule
  options.learning_rate = 0.005;
  linnet::Context context;
  linnet::Trainer trainer(context, config, options);

  std::mt19937 random(1);
  std::vector<std::int32_t> inputs(examples * length), targets(inputs.size());
  linnet::StepReport report;
  while (trainer.steps() < options.steps) {
    for (std::int64_t i = 0; i < examples; ++i) {  // numbers that count up or down, modulo 10
      std::int32_t number = random() % 10, input = config.first_input(-1);
      const std::int32_t step = random() % 2 == 0 ? 1 : 9;
      for (std::int64_t t = 0; t < length; ++t, input = number, number = (number + step) % 10) {
        inputs[i * length + t] = input;
        targets[i * length + t] = t < 2 ? -1 : number;  // the first two cannot be predicted
      }
    }
    report = trainer.step({examples, length, inputs, targets});
    if (report.step % 20 == 0)
      std::printf("step %d: %.3f bits\n", static_cast<int>(report.step), report.bits);
  }
  return report.bits < 0.5 ? 0 : 1;
} catch (const linnet::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
