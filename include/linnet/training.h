#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linnet/dataset.h"
#include "linnet/export.h"
#include "linnet/model.h"

namespace linnet {

class Communicator;  // linnet/communicator.h

/// AdamW (Loshchilov and Hutter 2019) or RAdam (Liu et al. 2020), both with decoupled weight decay.
enum class OptimiserKind { adamw, radam };

/// The learning rate over the updates: constant; a cosine down to the final rate (Loshchilov and Hutter 2017,
/// equation 5); the final rate after a certain update; or a fall with the inverse square root of the number
/// of updates (Vaswani et al. 2017, section 5.3), which does not depend on `steps`.
enum class Schedule { constant, cosine, step, inverse_sqrt };

/// How a model is trained. The keys are training.* of `linnet train --options`.
struct TrainingOptions {
  std::int64_t steps = 1000;    ///< number of updates
  std::int64_t batch = 16;      ///< examples per pass of `train`
  std::int64_t accumulate = 1;  ///< passes per update, whose gradients are added
  OptimiserKind optimiser = OptimiserKind::adamw;
  double learning_rate = 1e-3;  ///< the highest
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  ///< decoupled; of matrices, the learned positions excepted
  /// How the dense products round what they multiply: f32, or bf16. Sums, weights, states, normalisation,
  /// losses and the optimiser stay f32. Where a chip has no fast products of bf16, they are those of f32.
  WeightType precision = WeightType::f32;
  /// Keeps the input of every layer alone for the backward pass, which computes the rest once more: less
  /// memory, more time, the same bits.
  bool recompute = false;
  /// Steps of a sequence that are in memory at a time; 0 for all. The states of the layers carry a sequence
  /// from segment to segment, and their gradients the loss back, so that the gradient is that of the whole
  /// sequence. For causal models whose layers have states of a fixed size (linear, local), without an
  /// encoder, that predict at every step.
  std::int64_t segment = 0;
  bool truncate = false;  ///< gradients end at the beginning of a segment
  /// Processes that divide every sequence among them, each with a stretch of model.length / sequence_ranks
  /// steps (`Communicator`, `train`). The states of the layers pass between them. For layers of the linear
  /// family, causal or not, without an encoder, in models that predict at every step.
  std::int64_t sequence_ranks = 1;
  double clip = 1.0;                     ///< largest norm of the gradient; 0 for no limit
  Schedule schedule = Schedule::cosine;  ///< cosine: down to final_rate at `steps`
  std::int64_t warmup = 0;               ///< updates over which the rate rises from 0
  double final_rate = 0.1;               ///< final share of learning_rate, for cosine and step
  std::int64_t step_at = 3000;           ///< updates before the step
  double minutes = 0;                    ///< stop with a checkpoint after this time; 0 for no limit
  std::int64_t seed = 1;              ///< seed of initial weights, order of examples, dropout, hidden tokens
  std::int64_t log_every = 10;        ///< updates between lines of metrics.jsonl
  std::int64_t evaluate_every = 500;  ///< updates between evaluations; 0: only at the end
  std::int64_t evaluate_examples = 256;  ///< validation examples, evenly spaced; 0 for all
  std::int64_t sample_every = 500;       ///< updates between samples; 0 for none
  std::int64_t checkpoint_every = 500;   ///< updates between checkpoints; the end always has one
  std::int64_t keep_checkpoints = 2;     ///< older ones are deleted
  std::int64_t patience = 0;             ///< stop after this many evaluations without improvement; 0: never
  /// Factors of the losses of several heads, "1,0.5": of each field of tokens, then of the real numbers. They
  /// change what is learned, and no loss that is reported. Empty: 1 each.
  std::string head_weights = {};
  /// Of `train`: every training sequence is transposed, all tokens but 0 shifted by one random number of up
  /// to so many values, as the pitches of a piece are. The shift leaves all tokens among those of their
  /// fields.
  std::int64_t transpose = 0;
};

/// What is known about an update.
struct StepReport {
  std::int64_t step = 0;  ///< number of this update, from 1
  double bits = 0;        ///< bits per counted token, over the examples of this update
  /// The mean of the bits of all updates so far, in which a loss weighs 2 % less with each later update.
  double smoothed_bits = 0;
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  double tokens_per_second = 0;  ///< of this update; steps of padding are none
};

/// Examples of one length for one update, as the model takes them. The memory stays the caller's. A model
/// takes those of the spans that it has inputs and heads for; others are empty.
struct Batch {
  std::int64_t examples = 0;
  std::int64_t length = 0;  ///< positions per example, 1 … model.length
  /// [examples · length · input_fields], each 0 … ModelConfig::input_tokens() − 1. The inputs of a next-token
  /// model are `ModelConfig::first_input` and then all tokens of the example but its last. Further fields
  /// begin with a start token, which is the number of their values; steps of real numbers alone go on with
  /// −1. Those of a masked model are all tokens, with `ModelConfig::mask_token` in place of hidden ones.
  std::span<const std::int32_t> inputs = {};
  /// [examples · length · fields], each 0 … vocabulary − 1: the token to predict at this position (in a
  /// next-token model the one after its input), or −1: nothing is predicted here, so that the position adds
  /// nothing to the loss and to its gradient.
  std::span<const std::int32_t> targets = {};
  /// [examples], positions of each example before its padding; empty where no example has padding. No other
  /// position sees the padding. Its inputs may be any tokens of the model, its targets are −1.
  std::span<const std::int64_t> key_lengths = {};
  /// [examples · length, columns], the real numbers of the inputs; NaN for none, which is read as the mean.
  /// Those of a next-token model are the numbers of the steps before, NaN for the first step.
  std::span<const float> values = {};
  /// [examples · length, target_count], the real numbers to predict; NaN does not count.
  std::span<const float> value_targets = {};
  /// [examples], the labels that a classifier predicts, 0 … classes − 1; −1 does not count.
  std::span<const std::int32_t> labels = {};
  /// [examples · length], the position of each step in its own sequence where examples hold several ones, one
  /// after another: 0 at the beginning of each, and one more at every step behind. No step sees one of
  /// another sequence. Empty where every example is one sequence. Not for classifiers, nor for the families
  /// linformer, lsh and strided. A feature map of the user's own still gets the position in the example.
  std::span<const std::int32_t> positions = {};
  /// Of an encoder–decoder model: [examples · S], the tokens of the sources, each 0 …
  /// ModelConfig::source_tokens() − 1, with S from 1 to source_length; and [examples], the tokens of each
  /// before its padding, 1 … S, or empty where no source has padding.
  std::span<const std::int32_t> source = {};
  std::span<const std::int64_t> source_lengths = {};
  /// Of a next-token model of several fields: [examples · length · fields], the tokens of the steps to
  /// predict, from which the later fields of a step are predicted, or −1: not known, which adds nothing.
  /// Empty: the targets, so that a field that does not count is not known to later ones either.
  std::span<const std::int32_t> conditions = {};
};

/// A model in training: its parameters, the moments of its optimiser and the number of updates. The caller
/// gives the data. `train` is a loop around it that evaluates and writes files. Used by one thread at a
/// time. A trainer that was moved from may be assigned to and destroyed.
class LINNET_API Trainer {
 public:
  /// Starts from the parameters of `initial`, or where it is null from the random ones that options.seed
  /// decides. `initial` must have the same parameters as `config` describes; it may differ in other things,
  /// such as dropout. `feature_map` is one of your own that config.attention.linear.feature_map names;
  /// without it that of `initial` is used, or a built-in one. The context is used by every update and must
  /// stay where it is as long as the trainer lives. Of the options, those that decide updates are used: the
  /// intervals at which `train` reports, evaluates and saves are not, and batch only where examples are taken
  /// in order, but `restore` refuses another batch than that of the checkpoint. Throws UsageError for invalid
  /// options, configurations and `initial`, and for weights that are not f32.
  Trainer(Context& context, const ModelConfig& config, const TrainingOptions& options,
          const std::shared_ptr<const Model>& initial = nullptr,
          std::shared_ptr<const FeatureMap> feature_map = nullptr);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// One update with the mean loss of all targets of the batch that are not −1. The examples are split into
  /// options.accumulate passes, as equal as possible, so that the memory of a large batch is that of one
  /// pass. Throws UsageError, before anything is computed, for a batch that does not fit the model or has no
  /// target, OutOfMemoryError for passes that the machine's memory cannot hold, and Error where the loss or
  /// the gradient is not finite. No update is made then.
  StepReport step(const Batch& batch);

  /// One update with options.batch · options.accumulate examples in the order of `train` (`shuffled_index`):
  /// update n takes the n-th so many, whatever the updates before took. All updates so are those of `train`,
  /// in the same bits. Real numbers whose scale is not known before the first update take that of the
  /// dataset, where it has one. Throws as above, and UsageError for data that `train` refuses.
  StepReport step(const Dataset& dataset);

  /// One update with the examples of these indices, laid out as `train` lays them out. What is drawn for
  /// them, the hidden tokens of a masked model and the shifts of options.transpose, follows from options.seed
  /// and the number of examples before. Throws as above, and UsageError for an index that the dataset does
  /// not have.
  StepReport step(const Dataset& dataset, std::span<const std::int64_t> indices);

  /// The learning rate of all later updates in place of that of the schedule; with none the schedule's again.
  /// Checkpoints do not hold it, and `restore` leaves it as it is. Throws UsageError outside 0 … 10.
  void set_learning_rate(std::optional<double> rate);

  /// That of the next update.
  double learning_rate() const;

  /// Number of updates so far, those before a restored checkpoint included.
  std::int64_t steps() const;

  /// Writes a checkpoint: a model's folder with the optimiser's moments and the number of updates
  /// (docs/format.md), as those of `train`. The folder appears whole or not at all. It must be new or empty,
  /// or hold a checkpoint, which is replaced; Error otherwise.
  void save(const std::filesystem::path& folder) const;

  /// Continues from a checkpoint of this class or of `train`: later updates with the same batches give the
  /// same bits as without stopping. The assets that the checkpoint has take the place of those set before,
  /// and its scale of real numbers that of the trainer. Throws Error, and leaves the trainer unchanged, where
  /// the checkpoint is damaged or belongs to another configuration or to other options that decide updates.
  /// options.steps may differ: the schedule then goes on as with the new number.
  void restore(const std::filesystem::path& folder);

  /// Sets the scale of real numbers: means and deviations of the model's columns and of the numbers that it
  /// predicts, over the training data. `train` takes them from its dataset. Throws UsageError for other
  /// sizes, for numbers that are not finite, and after the first update.
  void set_columns(const ColumnStatistics& columns, const ColumnStatistics& targets);

  /// Names of the labels and the tokenizer of the data, which are kept with the model. `train` takes them
  /// from its dataset. Throws UsageError for names of another number of labels.
  void set_assets(ModelAssets assets);

  /// Both as `train` takes them from its training data: the assets, and the scale, unless `set_columns`, a
  /// checkpoint or an initial model gave one. Throws as these do, and UsageError for data that do not fit the
  /// model.
  void set_data(const Dataset& dataset);

  /// A copy of the model as it is now; later updates do not change it.
  std::shared_ptr<const Model> model() const;

  class Impl;
  Impl& impl() { return *impl_; }  ///< for Linnet's own modules
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Means over what counts in the evaluated examples: tokens (of a masked model the hidden ones), real
/// numbers, labels.
struct Evaluation {
  double bits = 0;          ///< bits per token: per byte, per dimension; per real number, per label
  double perplexity = 0;    ///< 2^bits
  double accuracy = 0;      ///< share of tokens whose most probable value is correct; NaN if not requested
  std::int64_t tokens = 0;  ///< that were counted
  std::int64_t examples = 0;
  /// Of the real numbers, in deviations of the training data: the mean squared and absolute difference
  /// between a number and the mean of its density, and the same where the last number before is repeated
  /// (next-token models). NaN for models without real numbers.
  double squared_error = std::numeric_limits<double>::quiet_NaN();
  double absolute_error = std::numeric_limits<double>::quiet_NaN();
  double naive_squared_error = std::numeric_limits<double>::quiet_NaN();
  double naive_absolute_error = std::numeric_limits<double>::quiet_NaN();
  /// The same where the rows of the last step are repeated (model.patch of them, such as those of a day): NaN
  /// where a step has one row.
  double seasonal_squared_error = std::numeric_limits<double>::quiet_NaN();
  double seasonal_absolute_error = std::numeric_limits<double>::quiet_NaN();
  /// Share of examples all of whose counted tokens are most probable given those before: those that greedy
  /// decoding writes without a fault. For models of one token per step; NaN if the accuracy is not requested.
  double exact = std::numeric_limits<double>::quiet_NaN();
  /// Of several fields: bits per token of each.
  std::vector<double> field_bits;
  static constexpr std::int64_t most_confused = 1000;
  /// Of a classifier: how many examples with label i (row) were given label j, [classes · classes]; empty for
  /// more than `most_confused` classes.
  std::vector<std::int64_t> confusion;
  /// Share of the queries of all layers and heads whose linear attention had no positive denominator.
  double non_positive = 0;
  /// Of models of tokens and of real numbers, whose `bits` are the mean over both: bits per token, nats per
  /// number, and how many of `tokens` are numbers. NaN for other models.
  double token_bits = std::numeric_limits<double>::quiet_NaN();
  double value_nats = std::numeric_limits<double>::quiet_NaN();
  std::int64_t numbers = 0;
  /// Errors of a part of the real numbers, as those of all.
  struct NumberErrors {
    double squared = std::numeric_limits<double>::quiet_NaN();
    double absolute = std::numeric_limits<double>::quiet_NaN();
    double naive_squared = std::numeric_limits<double>::quiet_NaN();
    double naive_absolute = std::numeric_limits<double>::quiet_NaN();
    double seasonal_squared = std::numeric_limits<double>::quiet_NaN();
    double seasonal_absolute = std::numeric_limits<double>::quiet_NaN();
  };
  /// Of a next-token model that predicts the next rows of its data: of each column of the data, in the order
  /// of `Dataset::column_names`, and of each of the rows that a step predicts, the nearest first.
  std::vector<NumberErrors> column_errors, row_errors;
  /// Of each of these columns the deviation in the training data, in the units of the data.
  std::vector<double> column_deviations;
  /// Of a filter, a same-step model with as many targets as columns: the mean square of the targets over that
  /// of the errors, in decibels (10 log₁₀), of the inputs taken as they are and of the model's means.
  /// Infinite without an error, NaN for other models.
  double input_signal_to_noise = std::numeric_limits<double>::quiet_NaN();
  double signal_to_noise = std::numeric_limits<double>::quiet_NaN();
};

/// Callbacks with which a program observes and stops the loop; each is optional. They cannot change results.
/// Where ranks train together, rank 0 alone calls them, except `should_stop`. What one throws ends the loop
/// and is passed on; one process alone first saves a checkpoint, as for `should_stop`.
struct TrainingCallbacks {
  /// Called once, when the folder is this run's and the checkpoint to resume from has been read, before
  /// anything else is written: for example to write a file that describes the run.
  std::function<void()> on_begin = {};
  std::function<void(const StepReport&)> on_step = {};
  std::function<void(std::int64_t step, const Evaluation&)> on_evaluation = {};
  /// Called every sample_every updates and at the end, for example to draw into `folder`/samples.
  std::function<void(std::int64_t step, const std::shared_ptr<const Model>&)> draw_samples = {};
  std::function<void(const std::string&)> on_message = {};
  /// Called after every update, and before every batch of an evaluation; true saves a checkpoint and ends the
  /// loop. An evaluation that is left is not recorded: a resume begins with it. All ranks call theirs, and
  /// all end the loop after the same update where one is true.
  std::function<bool()> should_stop = {};
};

/// A counted token of an evaluated example.
struct TokenLoss {
  std::int64_t example = 0;   ///< index in the dataset
  std::int64_t position = 0;  ///< in the example
  std::int32_t token = 0;
  double nats = 0;  ///< −log p(token)
};
using TokenLossCallback = std::function<void(const TokenLoss&)>;

struct TrainingResult {
  std::int64_t step = 0;
  bool finished = false;                 ///< all steps were done, or options.patience has ended the run
  std::optional<Evaluation> evaluation;  ///< the last one of this call
  std::int64_t best_step = -1;  ///< of the run's best evaluation, whose model is in best/; −1 for none
  double best_bits = 0;         ///< of that evaluation
};

/// Trains a model and writes into `folder`, from before the first update on: config.json, model.safetensors,
/// metrics.jsonl, checkpoints/STEP, and best/, the model of the best evaluation (docs/format.md). With
/// `resume` it continues from the newest checkpoint, if there is one, and ends with the same bits as without
/// stopping. options.steps may then differ from that of the checkpoint, but not lie below the updates that
/// are done. UsageError for data that are not those of the checkpoint: their numbers of examples and a few
/// examples are compared. Otherwise the folder must be empty or must not exist. The folder is a run for
/// `linnet runs`, `linnet plot` and all commands that read models. `linnet train --resume` also needs
/// run.toml, which says where the data are and which the program alone writes. Throws Error where another
/// program trains in the folder, and when the loss is no longer finite, naming the step, the layer and the
/// last good checkpoint. Throws UsageError where the data do not fit the model, also for a token outside the
/// vocabulary. `feature_map` and `initial` as in `Trainer`.
///
/// With `ranks` all of them call this with the same arguments, and share the passes of every update: at most
/// options.accumulate ranks, and so many passes with the same bits at the end as on one. Every rank reads the
/// examples of its own passes; rank 0 alone writes, the others read checkpoints in `folder` to resume. Throws
/// UsageError for more ranks and where configuration, options, data or first parameters of two ranks differ.
/// A rank on which it throws calls `Communicator::fail`, so that the others end too. Null: this process
/// alone.
LINNET_API TrainingResult train(Context& context, const ModelConfig& config, const TrainingOptions& options,
                                const Dataset& training, const Dataset& validation,
                                const std::filesystem::path& folder, bool resume,
                                const TrainingCallbacks& callbacks = {},
                                std::shared_ptr<const FeatureMap> feature_map = nullptr,
                                const std::shared_ptr<const Model>& initial = nullptr,
                                Communicator* ranks = nullptr);

/// A model to start a training from: one of `config` whose parameters are those of `model` where names and
/// shapes agree, and elsewhere the random ones that `seed` decides. Embeddings of the same tokens keep the
/// rows of these where the models differ in further rows: of the first input, labels and the mask.
/// `differences`, unless null, receives a phrase for every trained parameter that the two do not share. A
/// feature map of the user's own is that of `model`. Throws UsageError for an invalid `config`.
LINNET_API std::shared_ptr<const Model> adapt_model(const Model& model, const ModelConfig& config,
                                                    std::uint64_t seed,
                                                    std::vector<std::string>* differences = nullptr);

/// Mean loss of up to `examples` (0: all) evenly spaced examples, `batch` per pass. With `accuracy`, the most
/// probable value of every token is also compared. For a masked model every evaluation hides the same tokens
/// of an example. `on_token`, if given, is called for every counted token, example by example. Throws
/// UsageError for negative `examples`, for a `batch` below 1, and where the data do not fit the model; Error
/// where no target of the examples counts.
/// `ranks`, unless null, share the batches: all of them call with the same arguments and get the same result,
/// which has the same bits for any number of ranks. `on_token` is then called on rank 0 alone, for all
/// tokens. `on_batch`, if given, is called before every batch, on the thread that calls; what it throws ends
/// the evaluation.
LINNET_API Evaluation evaluate(Context& context, const Model& model, const Dataset& dataset,
                               std::int64_t examples, std::int64_t batch, bool accuracy = false,
                               const TokenLossCallback& on_token = {}, Communicator* ranks = nullptr,
                               const std::function<void()>& on_batch = {});

}  // namespace linnet
