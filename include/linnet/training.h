#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "linnet/dataset.h"
#include "linnet/model.h"

namespace linnet {

/// How a model is trained. The keys are those of `linnet train --help`, training.*.
struct TrainingOptions {
  std::int64_t steps = 1000;        ///< updates in all
  std::int64_t batch = 16;          ///< examples a pass
  std::int64_t accumulate = 1;      ///< passes an update
  std::string optimiser = "adamw";  ///< "adamw" or "radam"
  double learning_rate = 1e-3;      ///< the highest
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;       ///< decoupled; of matrices only
  double clip = 1.0;                ///< largest norm of the gradient; 0 does not clip
  std::string schedule = "cosine";  ///< "constant", "cosine" (down to final_rate at `steps`), "step"
  std::int64_t warmup = 0;          ///< updates over which the rate rises from 0
  double final_rate = 0.1;          ///< share of learning_rate that cosine ends at, or that follows the step
  std::int64_t step_at = 3000;      ///< updates before the step
  double minutes = 0;               ///< stop, with a checkpoint, after that much time; 0 does not
  std::int64_t seed = 1;            ///< of initial weights, order of examples, dropout, hidden tokens
  std::int64_t log_every = 10;      ///< updates between lines of metrics.jsonl
  std::int64_t evaluate_every = 500;     ///< updates between evaluations; 0 only at the end
  std::int64_t evaluate_examples = 256;  ///< of the validation set, evenly spaced; 0 takes all
  std::int64_t sample_every = 500;       ///< updates between sample pictures; 0 none
  std::int64_t checkpoint_every = 500;   ///< updates between checkpoints; the end always has one
  std::int64_t keep_checkpoints = 2;     ///< older ones are deleted
};

/// What the loop reports after an update.
struct StepReport {
  std::int64_t step = 0;
  double bits = 0;           ///< bits a counted token, of this update's examples
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  double tokens_per_second = 0;  ///< of this update
};

/// Mean over the counted tokens of the evaluated examples; of a masked model, the hidden ones.
struct Evaluation {
  double bits = 0;        ///< bits a token: per byte, per dimension
  double perplexity = 0;  ///< 2^bits
  double accuracy = 0;    ///< share of tokens whose most probable value is right; NaN where not asked for
  std::int64_t tokens = 0;
  std::int64_t examples = 0;
  /// Share of the queries of all layers and heads whose linear attention had no positive denominator.
  double non_positive = 0;
};

/// Doors through which a program follows and steers the loop; each may be empty. They cannot change results.
struct TrainingCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(std::int64_t step, const Evaluation&)> on_evaluation;
  /// At sample_every and at the end: draw into `folder`/samples, say.
  std::function<void(std::int64_t step, const std::shared_ptr<const Model>&)> draw_samples;
  std::function<void(const std::string&)> on_message;
  /// Asked after every update; true saves a checkpoint and ends the loop.
  std::function<bool()> should_stop;
};

struct TrainingResult {
  std::int64_t step = 0;
  bool finished = false;  ///< all steps were done
  std::optional<Evaluation> evaluation;
};

/// Trains a model in `folder`, which gets config.json and model.safetensors (a model's folder), metrics.jsonl
/// and checkpoints/STEP. With `resume` it continues from the last checkpoint, if there is one, and ends in
/// the very bits it would have reached without stopping; otherwise the folder must be empty or not exist.
/// Throws Error where the loss stops being finite, naming the step, the layer and the last good checkpoint.
TrainingResult train(Context& context, const ModelConfig& config, const TrainingOptions& options,
                     const Dataset& training, const Dataset& validation, const std::filesystem::path& folder,
                     bool resume, const TrainingCallbacks& callbacks = {});

/// Mean loss of up to `examples` (0: all) evenly spaced examples, `batch` at a time. With `accuracy`, the
/// most probable value of every token is compared too. A masked model has the same tokens of an example
/// hidden in every evaluation.
Evaluation evaluate(Context& context, const Model& model, const Dataset& dataset, std::int64_t examples,
                    std::int64_t batch, bool accuracy = false);

}  // namespace linnet
