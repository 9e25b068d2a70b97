#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generation/stream_file.h"
#include "io/png.h"
#include "linnet/communicator.h"
#include "linnet/generation.h"
#include "report.h"

namespace linnet {

/// The upper halves of the pictures in a PNG or JPEG, one of CIFAR-10's .bin files or an IDX file, as tokens:
/// of all of them, or of the first `count`. Throws Error where they are not of the model's size and channels.
std::vector<std::vector<std::int32_t>> upper_halves(const ModelConfig& config, const std::string& path,
                                                    std::int64_t count);

/// What to draw, and how far.
struct Drawing {
  std::int64_t count = 64;                              ///< examples
  std::vector<std::int64_t> labels = {};                ///< of the examples in turn; empty: all classes
  SamplingOptions sampling = {};                        ///< example i has seed sampling.seed + i
  std::vector<std::vector<std::int32_t>> prompts = {};  ///< what the examples begin with; empty: nothing
  std::vector<SavedStream> begun = {};  ///< if any, examples to go on with, instead of all above
  std::int64_t streams = 64;            ///< drawn at a time
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();  ///< tokens drawn of each, at most
  Session::Options session = {};
};

/// Draws examples, whole or as far as `drawing.steps` lets it; `saved`, unless null, receives their streams.
/// `ranks`, unless null, share the examples; rank 0 gets all of them, the others nothing. Throws Error where
/// `drawing.begun` are not this model's.
std::vector<std::vector<std::int32_t>> draw_examples(const std::shared_ptr<const Model>& model,
                                                     const Drawing& drawing, Progress* progress,
                                                     std::vector<SavedStream>* saved = nullptr,
                                                     Communicator* ranks = nullptr);

/// A grid of pictures, as square as it can be unless `columns` says otherwise, enlarged so that small ones
/// are seen.
Image picture_grid(const ModelConfig& config, std::span<const std::vector<std::int32_t>> examples,
                   std::int64_t columns = 0);

/// Throws UsageError where `picture_grid` would, before the pictures are drawn.
void check_picture_grid(const ModelConfig& config, std::int64_t count, std::int64_t columns);

}  // namespace linnet
