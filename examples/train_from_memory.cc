// Trains a small model on arrays of its own, prints the loss, and lets the model continue a sequence.
//   train_from_memory
#include <cstdio>
#include <random>
#include <vector>

#include "linnet/error.h"
#include "linnet/generation.h"
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
  options.warmup = 10;
  linnet::Context context;
  linnet::Trainer trainer(context, config, options);

  std::mt19937 random(1);
  std::vector<std::int32_t> inputs(examples * length), targets(inputs.size());
  linnet::StepReport report;
  while (trainer.steps() < options.steps) {
    for (std::int64_t i = 0; i < examples; ++i) {  // numbers that count up or down, modulo 10
      std::int32_t number = random() % 10, input = config.first_input(-1);
      const std::int32_t step = random() % 2 == 0 ? 1 : 9;
      for (std::int64_t t = i * length; t < (i + 1) * length; ++t, number = (number + step) % 10) {
        inputs[t] = input;
        targets[t] = t < i * length + 2 ? -1 : number;  // nobody can predict the first two
        input = number;
      }
    }
    report = trainer.step({examples, length, inputs, targets});
    if (report.step % 20 == 0)
      std::printf("step %3d: %.3f bits per number\n", static_cast<int>(report.step), report.bits);
  }

  linnet::Session session(trainer.model(), /*streams=*/1);
  session.begin(0, /*label=*/-1, {.temperature = 0});
  session.prefill(0, std::vector<std::int32_t>{3, 2});
  std::printf("3 2");
  for (std::int32_t token, i = 0; i < 8; ++i) session.step({&token, 1}), std::printf(" %d", token);
  std::puts("");
  return report.bits < 0.5 ? 0 : 1;
} catch (const linnet::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
