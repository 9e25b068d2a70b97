#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/options.h"
#include "linnet/training.h"
#include "model/segments.h"

namespace linnet {

/// The largest training.steps, and of everything else that counts updates.
inline constexpr std::int64_t most_steps = std::int64_t{1} << 40;

/// The largest learning rate.
inline constexpr double most_learning_rate = 10;

/// Adds the keys training.*, bound to `options`.
void add_options(Options& table, TrainingOptions& options);

/// Without which other setting a key of training.* changes nothing, where these options lack it, to be said
/// behind "has no effect"; empty where it has one.
std::string without_effect(const TrainingOptions& options, std::string_view key);

/// How the memory of a pass is bounded.
PassBounds bounds_of(const TrainingOptions& options);

/// What a model's loss is counted by: "token", "number" or "label".
const char* unit_of(const ModelConfig& config);

/// The factors of the heads of a model as training.head_weights lists them, none where it is empty. Throws
/// UsageError for a list that does not fit the model.
std::vector<float> head_weights(const TrainingOptions& options, const ModelConfig& config);

/// Those of them that do not decide the parameters after a given update: how often `train` reports, evaluates
/// and saves, when it stops, and what it keeps in memory.
std::span<const std::string_view> keys_of_the_loop();

}  // namespace linnet
