#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "io/json.h"
#include "run_record.h"

namespace linnet {

/// The file of a run's folder that holds its metrics.
inline constexpr const char* metrics_file = "metrics.jsonl";

/// metrics.jsonl of a training run (docs/format.md).
struct MetricsFile {
  Json heading = Json::object();  ///< the first line, with the settings; runs of earlier versions have none
  std::vector<Json> lines;        ///< of updates and evaluations, each with a step
};

/// Throws UsageError where the folder has no metrics.jsonl, and Error naming the line that cannot be read.
/// The last line is left out where a run is writing it.
MetricsFile read_metrics(const std::filesystem::path& run);

/// Says on standard error where a model's folder is a run whose last evaluation was worse than its best one
/// by more than 1 %: that model is in best/. Files that cannot be read are nothing to stop for.
void note_better_evaluation(const std::filesystem::path& model);

/// The record of a run, or one with nothing but the configuration in the first line of its metrics, where it
/// has one of them.
std::optional<RunRecord> record_of_run(const std::filesystem::path& run, const MetricsFile& metrics);

}  // namespace linnet
