#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "run_record.h"

namespace linnet {

/// The value of every key of a run's configuration, as text.
using RunSettings = std::map<std::string, std::string>;
RunSettings settings_of(const RunConfig& config);
/// The same, with the model and the contents of the data that the run began with.
RunSettings settings_of(const RunRecord& record);

/// Runs that repeat each other: those whose settings are equal but for training.seed and attention.seed. The
/// groups are in the order of their first runs, and hold the places of the runs, in order.
std::vector<std::vector<std::size_t>> groups_by_seeds(const std::vector<RunSettings>& runs);

/// Groups of one run each.
std::vector<std::vector<std::size_t>> groups_of_one(std::size_t runs);

/// Of every group the settings in which it differs from another one, as "key=value" of its first run with
/// blanks between, in the order of the keys. The seeds count where every group is one run.
std::vector<std::string> differences(const std::vector<RunSettings>& runs,
                                     const std::vector<std::vector<std::size_t>>& groups);

}  // namespace linnet
