#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/series.h"
#include "io/sound.h"
#include "linnet/dataset.h"

namespace linnet {

/// The file of a run's folder that holds the columns of its data.
inline constexpr const char* columns_file = "columns.json";

/// What columns.json in the folder of a run holds: of real numbers the columns of its data and how they were
/// read, which a model that has no record of its run knows from here alone; of sound its rate and channels.
struct RunColumns {
  std::vector<std::string> names;
  ColumnStatistics applied;  ///< as Dataset::applied_statistics
  SeriesForm form = {};      ///< of sound the split alone
  std::optional<SoundFormat> sound = {};

  static RunColumns of(const Dataset& dataset);

  /// Has `data` read the columns as those of the run were read.
  void take_form(DataOptions& data) const;

  /// Nothing where the folder has no such file. Throws Error for a damaged one.
  static std::optional<RunColumns> read(const std::filesystem::path& run);

  /// Writes the file, unless the data have no named columns and are no sound.
  void write(const std::filesystem::path& run) const;

  /// Throws UsageError, naming `command`, where the columns `found` in `origin` are others or in another
  /// order, or the run has sound.
  void check(const char* command, const std::string& origin, std::vector<std::string> found) const;

  /// Throws UsageError, naming `command`, where the sound in `origin` has another rate or other channels, or
  /// the run has other data than sound.
  void check(const char* command, const std::string& origin, const SoundFormat& found) const;
};

}  // namespace linnet
