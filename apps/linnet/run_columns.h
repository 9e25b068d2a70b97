#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "linnet/dataset.h"

namespace linnet {

/// What columns.json in the folder of a run on real numbers holds: the columns of its data.
struct RunColumns {
  std::vector<std::string> names;
  ColumnStatistics applied;  ///< as Dataset::applied_statistics

  static RunColumns of(const Dataset& dataset) {
    return {dataset.column_names(), dataset.applied_statistics()};
  }

  /// Nothing where the folder has no such file. Throws Error for a damaged one.
  static std::optional<RunColumns> read(const std::filesystem::path& run);

  /// Writes the file, unless the data have no named columns.
  void write(const std::filesystem::path& run) const;

  /// Throws UsageError, naming `command`, where the columns `found` in `origin` are others or in another
  /// order.
  void check(const char* command, const std::string& origin, std::vector<std::string> found) const;
};

}  // namespace linnet
