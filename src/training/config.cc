#include "training/config.h"

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "base/lists.h"
#include "base/names.h"

namespace linnet {

void add_options(Options& table, TrainingOptions& options) {
  table.add("training.steps", options.steps, "number of updates", 0, most_steps);
  table.add("training.batch", options.batch, "examples per pass", 1, 1 << 20);
  table.add("training.accumulate", options.accumulate, "passes per update, whose gradients are added", 1,
            1 << 20);
  table.add("training.optimiser", options.optimiser, "AdamW or RAdam, both with decoupled weight decay",
            {"adamw", "radam"});
  table.add("training.precision", options.precision,
            "numbers that dense products multiply; weights, sums and the optimiser stay f32",
            {"f32", "bf16"});
  table.add("training.learning_rate", options.learning_rate, "highest learning rate", 0, most_learning_rate);
  table.add("training.beta1", options.beta1, "decay of the gradient's mean", 0, 0.999999);
  table.add("training.beta2", options.beta2, "decay of the squared gradient's mean", 0, 0.9999999);
  table.add("training.epsilon", options.epsilon, "added to the root of the squared gradient's mean", 1e-16,
            1);
  table.add("training.weight_decay", options.weight_decay,
            "weight decay of matrices, learned positions excepted", 0, 10);
  table.add("training.recompute", options.recompute,
            "keep the input of every layer alone and compute the rest once more for the backward pass: less "
            "memory, more time, the same bits");
  table.add(
      "training.segment", options.segment,
      "steps of a sequence that are in memory at a time, for sequences longer than memory; states carry "
      "the loss from segment to segment; 0: all steps",
      0, std::numeric_limits<std::int64_t>::max());
  table.add("training.truncate", options.truncate,
            "whether gradients end at the beginning of a segment: faster than the exact ones");
  table.add("training.sequence_ranks", options.sequence_ranks,
            "MPI processes that divide every sequence among them, for layers of the linear family", 1,
            1 << 20);
  table.add("training.clip", options.clip, "largest norm of the gradient; 0 for no limit", 0, 1e9);
  table.add("training.schedule", options.schedule, "schedule of the learning rate",
            {"constant", "cosine", "step", "inverse-sqrt"});
  table.add("training.warmup", options.warmup, "updates over which the rate rises from 0", 0, most_steps);
  table.add("training.final_rate", options.final_rate, "final fraction of the rate, for cosine and step", 0,
            1);
  table.add("training.step_at", options.step_at, "update at which schedule \"step\" lowers the rate", 0,
            most_steps);
  table.add("training.minutes", options.minutes, "stop with a checkpoint after this time; 0 for no limit", 0,
            1e7);
  table.add("training.seed", options.seed,
            "seed of initial weights, order of examples, dropout and hidden tokens", 0,
            std::numeric_limits<std::int64_t>::max());
  table.add("training.log_every", options.log_every, "updates between lines of metrics.jsonl", 1, most_steps);
  table.add("training.evaluate_every", options.evaluate_every,
            "updates between evaluations; 0 evaluates only at the end", 0, most_steps);
  table.add("training.evaluate_examples", options.evaluate_examples,
            "validation examples per evaluation; 0 for all", 0, most_steps);
  table.add("training.sample_every", options.sample_every, "updates between samples; 0 for none", 0,
            most_steps);
  table.add("training.checkpoint_every", options.checkpoint_every, "updates between checkpoints", 1,
            most_steps);
  table.add("training.keep_checkpoints", options.keep_checkpoints, "number of newest checkpoints to keep", 1,
            1 << 20);
  table.add("training.patience", options.patience,
            "stop after this number of evaluations without improvement; 0 never does", 0, most_steps);
  table.add(
      "training.head_weights", options.head_weights,
      "factors of the losses of several heads, separated by commas: of each field of tokens, then of the "
      "real numbers; empty: 1 each");
  table.add(
      "training.transpose", options.transpose,
      "largest random shift of all tokens but 0 of a training sequence, as music is transposed; 0: none", 0,
      1 << 20);
}

std::string without_effect(const TrainingOptions& options, std::string_view key) {
  const bool step = options.schedule == Schedule::step, cosine = options.schedule == Schedule::cosine;
  if (key == "training.final_rate" && !step && !cosine) return "without training.schedule = cosine or step";
  if (key == "training.step_at" && !step) return "without training.schedule = step";
  if (key == "training.truncate" && options.segment == 0) return "without training.segment";
  if (key == "training.patience" && options.evaluate_every == 0) return "without training.evaluate_every";
  return {};
}

PassBounds bounds_of(const TrainingOptions& options) {
  return {.recompute = options.recompute, .segment = options.segment, .truncate = options.truncate};
}

const char* unit_of(const ModelConfig& config) {
  return config.classifies() ? "label" : config.target_count() == 0 ? "token" : "number";
}

std::vector<float> head_weights(const TrainingOptions& options, const ModelConfig& config) {
  if (options.head_weights.empty()) return {};
  const bool tokens = config.shifted() || config.masked();
  const std::int64_t heads = (tokens ? std::ssize(config.field_sizes()) : 0) + (config.target_count() > 0);
  if (heads < 2)
    fail<UsageError>("training",
                     "expected no training.head_weights for a model of one output head, got \"{}\"",
                     shortened(options.head_weights));
  constexpr double most = 1e6;
  const auto weights = numbers(options.head_weights, 0, most);
  if (!weights || std::ssize(*weights) != heads || std::ranges::count(*weights, 0.0) == heads)
    fail<UsageError>("training",
                     "expected training.head_weights to be {} numbers in 0 … {}, not all of them 0, for the "
                     "heads of {}, got \"{}\"",
                     heads, most,
                     config.target_count() == 0 ? "the fields"
                     : heads == 2               ? "the tokens and the real numbers"
                                                : "the fields and the real numbers",
                     shortened(options.head_weights));
  return {weights->begin(), weights->end()};
}

std::span<const std::string_view> keys_of_the_loop() {
  static constexpr std::string_view keys[] = {
      "training.minutes",           "training.log_every",    "training.evaluate_every",
      "training.evaluate_examples", "training.sample_every", "training.checkpoint_every",
      "training.keep_checkpoints",  "training.patience",     "training.recompute"};
  return keys;
}

}  // namespace linnet
