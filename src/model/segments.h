#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/training_transformer.h"

namespace linnet {

/// How the memory of a training pass is bounded.
struct PassBounds {
  bool recompute = false;    ///< as in TrainingTransformer
  std::int64_t segment = 0;  ///< steps that are in memory at a time; 0: all
  bool truncate = false;     ///< whether gradients end at the beginning of a segment

  /// Whether sequences of so many steps are processed in more than one segment.
  bool cuts(std::int64_t length) const { return segment > 0 && segment < length; }

  /// Steps in memory at a time.
  std::int64_t together(std::int64_t length) const { return cuts(length) ? segment : length; }
};

/// Throws UsageError, naming the option, where a model cannot be trained in segments (has_fixed_states).
void check_segments(const ModelConfig& config);

/// Dropout with numbers of its own for a pass, or for a part of the sequences of one. Seeds that are made so
/// never meet those of other passes, parts and runs.
Dropout dropout_of_pass(const Dropout& dropout, std::int64_t pass);
Dropout dropout_of_part(const Dropout& dropout, std::int64_t part);

/// Some of the steps of all sequences of a pass, as a pass of their own. The piece owns the memory of what
/// lies apart where there are several entries.
class PassPiece {
 public:
  /// Steps [first, first + count). The pass that it returns lives until the next call.
  Pass of(const Pass& pass, std::int64_t first, std::int64_t count);

 private:
  std::vector<std::int32_t> ids_, targets_, conditions_;
  std::vector<float> values_, value_targets_, values_before_;
  std::vector<std::int64_t> key_lengths_;
};

/// The loss of a pass with its gradients, segment by segment: the memory is that of a segment and of the
/// states between two of them. The gradient is that of the whole sequence: a first sweep computes the states
/// from the first segment to the last, a second one goes back from the last, computes each segment once more
/// and hands on the gradient of its initial states. With `truncate`, one sweep is enough: every segment
/// continues the states of the one before as given numbers (truncated back-propagation through time).
/// Dropout draws other numbers in each segment.
class SegmentedTransformer {
 public:
  /// For passes of up to `batch` × `length` steps.
  SegmentedTransformer(const Network& network, std::int64_t batch, std::int64_t length,
                       const PassBounds& bounds);

  /// Floats of the memory that it takes; `precision` as in TrainingTransformer.
  static double floats(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                       const PassBounds& bounds, kernels::WeightType precision = kernels::WeightType::f32);

  /// Σ −log p in nats over the targets that count; the gradient of weight · Σ is added. Where the sum is not
  /// finite, it ends early and the gradients mean nothing. A pass of a stretch (`part.exchange`) is not cut
  /// into segments. `complete` as in TrainingTransformer, of the whole pass.
  double accumulate(Context& context, const Pass& pass, float weight, const Dropout& dropout,
                    std::span<float> gradients, const PassPart& part = {},
                    const GradientsComplete& complete = {});

  /// As in TrainingTransformer, of the last segment that was computed.
  std::string first_not_finite(Context& context) const { return transformer_.first_not_finite(context); }

 private:
  double exact(Context& context, const Pass& pass, float weight, const Dropout& dropout,
               std::span<float> gradients, const GradientsComplete& complete);
  double truncated(Context& context, const Pass& pass, float weight, const Dropout& dropout,
                   std::span<float> gradients, const GradientsComplete& complete);
  Pass segment_of(const Pass& pass, std::int64_t index);
  /// So many states of a pass with `batch` entries, in `states_`.
  void reserve_states(std::int64_t batch, std::int64_t count);
  std::vector<View<float>> state_gradients(std::int64_t batch, std::size_t which);

  const Network& network_;
  PassBounds bounds_;
  TrainingTransformer transformer_;
  PassPiece piece_;
  std::vector<RecurrentState> states_;
  std::int64_t state_batch_ = 0;            ///< slots of `states_`
  std::vector<Tensor> state_gradients_[2];  ///< of each layer, of two neighbouring segments
};

}  // namespace linnet
