#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/png.h"
#include "linnet/generation.h"
#include "report.h"

namespace linnet {

/// Tokens as a grey picture. Throws UsageError where the model's tokens are not pixels.
Image picture(const ModelConfig& config, std::span<const std::int32_t> tokens);

/// Draws `count` whole examples, at most `streams` at a time. Picture i has label labels[i % labels.size()]
/// (empty: all classes in turn), seed sampling.seed + i, and begins with prompts[i], where there are prompts.
std::vector<std::vector<std::int32_t>> draw_examples(const std::shared_ptr<const Model>& model,
                                                     std::int64_t count, std::span<const std::int64_t> labels,
                                                     SamplingOptions sampling,
                                                     std::span<const std::vector<std::int32_t>> prompts,
                                                     std::int64_t streams, const Session::Options& options,
                                                     Progress* progress);

/// A grid of pictures, as square as it can be unless `columns` says otherwise, enlarged so that small ones
/// are seen.
Image picture_grid(const ModelConfig& config, std::span<const std::vector<std::int32_t>> examples,
                   std::int64_t columns = 0);

}  // namespace linnet
