#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/random.h"
#include "linnet/training.h"
#include "model/heads.h"

namespace linnet {

/// Examples laid out for a model. Inputs are the first token (start or class) and then all tokens but the
/// last; for a masked model all tokens, some of them hidden, which are the targets.
class Examples {
 public:
  /// Which examples, for the i-th read.
  using Index = std::function<std::int64_t(std::int64_t i)>;

  /// Where a masked model's hidden tokens come from (masking.h): draw(i) numbers the i-th example.
  struct Masks {
    Random random;
    Index draw;
    std::int64_t transpose = 0;  ///< as training.transpose, with its own draws
    Random shifts = random;
  };

  /// Reads `count` examples, the i-th being index(i) of the dataset; read on all threads of the context. The
  /// batch lives until the next call.
  Batch read(Context& context, const Dataset& dataset, const ModelConfig& config, std::int64_t count,
             const Index& index, const Masks& masks);

 private:
  void read_one(const Dataset& dataset, const ModelConfig& config, std::int64_t i, std::int64_t index,
                const Masks& masks);

  std::vector<std::int32_t> inputs_, targets_, conditions_, labels_;
  std::vector<float> values_, value_targets_;
  std::vector<std::int64_t> key_lengths_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> source_;
  std::vector<std::int64_t> source_lengths_;
};

/// Streams of Draw::masking: every update of a run hides other tokens and shifts them in another way, an
/// evaluation always hides the same.
inline constexpr std::uint32_t training_masks = 0, evaluation_masks = 1, training_shifts = 2;

/// The examples [first, last) of a batch.
Batch part_of(const Batch& batch, std::int64_t first, std::int64_t last);

/// Steps of a batch before the padding.
std::int64_t steps_in(const Batch& batch);

/// What counts in the loss: targets and labels that are not −1, real numbers that are not NaN.
std::int64_t counted_targets(const Batch& batch);

/// Throws UsageError, naming `operation`, where a batch does not fit the model: sizes, tokens outside the
/// vocabulary, key lengths.
void check_batch(const char* operation, const ModelConfig& config, const Batch& batch);

/// The batch as a pass through the model.
Pass pass_of(const Batch& batch);

/// The inputs of the batch alone, as Model::classify and Model::hidden take them.
Steps steps_of(const Batch& batch);

/// Throws UsageError where the dataset's examples do not fit the model: length, vocabulary, classes.
void check_fit(const ModelConfig& config, const Dataset& dataset);

/// Throws UsageError where a training of these options cannot take the dataset's examples, whose form may be
/// another one than the model's.
void check_training_data(const ModelConfig& config, const TrainingOptions& options, const Dataset& dataset);

/// The names of the dataset's labels as a model's files hold them.
std::vector<std::string> label_names(const Dataset& dataset);

/// Throws UsageError where the dataset's labels have other names than the model's, or its text went through
/// another tokenizer.
void check_assets(const ModelAssets& assets, const Dataset& dataset);

}  // namespace linnet
