#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/random.h"
#include "linnet/model.h"

namespace linnet {

class Dataset;

/// Examples laid out for a model. Inputs are the first token (start or class) and then all tokens but the
/// last; for a masked model all tokens, some of them hidden, which are the targets.
struct Examples {
  /// Which examples, for the i-th read.
  using Index = std::function<std::int64_t(std::int64_t i)>;

  /// Where a masked model's hidden tokens come from (masking.h): draw(i) numbers the i-th example.
  struct Masks {
    Random random;
    Index draw;
  };

  std::vector<std::int32_t> inputs;       ///< [count · length]
  std::vector<std::int32_t> targets;      ///< [count · length], −1 where nothing is counted
  std::vector<std::int64_t> key_lengths;  ///< [count], tokens of each example; empty where all are whole
  std::int64_t counted = 0;               ///< targets that are not negative

  /// Reads `count` examples, the i-th being index(i) of the dataset; read on all threads of the context.
  void read(Context& context, const Dataset& dataset, const ModelConfig& config, std::int64_t count,
            const Index& index, const Masks& masks);

  /// The key lengths of `count` examples from `first` on.
  std::span<const std::int64_t> lengths_of(std::int64_t first, std::int64_t count) const {
    if (key_lengths.empty()) return {};
    return std::span(key_lengths).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
};

/// Streams of Draw::masking: every update of a run hides other tokens, an evaluation always the same.
inline constexpr std::uint32_t training_masks = 0, evaluation_masks = 1;

/// Throws UsageError where the dataset's examples do not fit the model: length, vocabulary, classes.
void check_fit(const ModelConfig& config, const Dataset& dataset);

}  // namespace linnet
