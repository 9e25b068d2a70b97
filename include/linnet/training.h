#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "linnet/dataset.h"
#include "linnet/export.h"
#include "linnet/model.h"

namespace linnet {

/// How a model is trained. The keys are those of `linnet train --help`, training.*.
struct TrainingOptions {
  std::int64_t steps = 1000;        ///< number of updates
  std::int64_t batch = 16;          ///< examples per pass
  std::int64_t accumulate = 1;      ///< passes per update
  std::string optimiser = "adamw";  ///< "adamw" or "radam"
  double learning_rate = 1e-3;      ///< the highest
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;         ///< decoupled; of matrices only
  double clip = 1.0;                  ///< largest norm of the gradient; 0 for no limit
  std::string schedule = "cosine";    ///< "constant", "cosine" (down to final_rate at `steps`), "step"
  std::int64_t warmup = 0;            ///< updates over which the rate rises from 0
  double final_rate = 0.1;            ///< final share of learning_rate, for cosine and step
  std::int64_t step_at = 3000;        ///< updates before the step
  double minutes = 0;                 ///< stop with a checkpoint after this time; 0 for no limit
  std::int64_t seed = 1;              ///< seed of initial weights, order of examples, dropout, hidden tokens
  std::int64_t log_every = 10;        ///< updates between lines of metrics.jsonl
  std::int64_t evaluate_every = 500;  ///< updates between evaluations; 0: only at the end
  std::int64_t evaluate_examples = 256;  ///< validation examples, evenly spaced; 0 for all
  std::int64_t sample_every = 500;       ///< updates between samples; 0 for none
  std::int64_t checkpoint_every = 500;   ///< updates between checkpoints; the end always has one
  std::int64_t keep_checkpoints = 2;     ///< older ones are deleted
};

/// What the loop reports after an update.
struct StepReport {
  std::int64_t step = 0;
  double bits = 0;           ///< bits per counted token, over the examples of this update
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  double tokens_per_second = 0;  ///< of this update
};

/// Means over the counted tokens of the evaluated examples. For a masked model these are the hidden tokens.
struct Evaluation {
  double bits = 0;        ///< bits per token: per byte, per dimension
  double perplexity = 0;  ///< 2^bits
  double accuracy = 0;    ///< share of tokens whose most probable value is correct; NaN if not requested
  std::int64_t tokens = 0;
  std::int64_t examples = 0;
  /// Share of the queries of all layers and heads whose linear attention had no positive denominator.
  double non_positive = 0;
};

/// Callbacks with which a program observes and stops the loop; each is optional. They cannot change results.
struct TrainingCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(std::int64_t step, const Evaluation&)> on_evaluation;
  /// Called every sample_every updates and at the end, for example to draw into `folder`/samples.
  std::function<void(std::int64_t step, const std::shared_ptr<const Model>&)> draw_samples;
  std::function<void(const std::string&)> on_message;
  /// Called after every update; true saves a checkpoint and ends the loop.
  std::function<bool()> should_stop;
};

struct TrainingResult {
  std::int64_t step = 0;
  bool finished = false;  ///< all steps were done
  std::optional<Evaluation> evaluation;
};

/// Trains a model and writes config.json, model.safetensors, metrics.jsonl and checkpoints/STEP into
/// `folder`. With `resume` it continues from the newest checkpoint, if there is one, and ends with the same
/// bits as without stopping. Otherwise the folder must be empty or must not exist. Throws Error when the loss
/// is no longer finite, naming the step, the layer and the last good checkpoint.
LINNET_API TrainingResult train(Context& context, const ModelConfig& config, const TrainingOptions& options,
                                const Dataset& training, const Dataset& validation,
                                const std::filesystem::path& folder, bool resume,
                                const TrainingCallbacks& callbacks = {});

/// Mean loss of up to `examples` (0: all) evenly spaced examples, `batch` per pass. With `accuracy`, the most
/// probable value of every token is also compared. For a masked model every evaluation hides the same tokens
/// of an example.
LINNET_API Evaluation evaluate(Context& context, const Model& model, const Dataset& dataset,
                               std::int64_t examples, std::int64_t batch, bool accuracy = false);

}  // namespace linnet
