#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "io/json.h"

namespace linnet {

/// The step of a line of metrics.jsonl that an update or an evaluation has written; nothing for other lines.
std::optional<std::int64_t> step_of(const Json& line);

/// metrics.jsonl of a run (docs/format.md): a first line with the settings, and a line for every logged
/// update and every evaluation.
class Metrics {
 public:
  explicit Metrics(const std::filesystem::path& run);

  /// Prepares the file for lines after update `step`: those of later updates are removed, which a killed run
  /// made after its last checkpoint and which will be written again, as will be the evaluation after `step`
  /// where that is due. `first` becomes the first line. Returns the number of lines that were left out
  /// because they cannot be read; the file as it was is then `damaged`.
  std::int64_t begin(std::int64_t step, bool evaluation_due, const Json& first) const;

  void append(const Json& line) const;

  std::filesystem::path damaged() const;  ///< metrics.jsonl.damaged

 private:
  std::filesystem::path path_;
};

}  // namespace linnet
