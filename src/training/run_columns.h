#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/series.h"
#include "io/sound.h"
#include "linnet/dataset.h"
#include "linnet/model.h"

namespace linnet {

/// What columns.json in the folder of a model holds: how the data of its run were read, which a model that
/// has no record of its run knows from here alone. Of real numbers the columns, of sound its rate and
/// channels, of files of tokens of four bytes these.
struct RunColumns {
  std::vector<std::string> names;
  ColumnStatistics applied;  ///< as Dataset::applied_statistics
  SeriesForm form = {};      ///< of sound the split alone
  std::optional<SoundFormat> sound = {};
  std::int64_t token_bytes = 0;  ///< of .bin files, where that is not the default

  static RunColumns of(const Dataset& dataset);

  /// Has `data` of the kind of the run's read as those of the run were read, their columns by their names.
  /// Throws UsageError, as `take_columns` does, for a series where the run has sound.
  void take_form(DataOptions& data) const;

  /// Has a series read with the columns of the run, and with their statistics where these are apart. Where
  /// `data` name none, the columns are found by their names, so that a file may have others too, or these in
  /// another order; but for names that are no list as data.columns, or were not UTF-8.
  void take_columns(DataOptions& data) const;

  /// The frames of a step of sound, as a model of `config` takes them.
  std::int64_t frames_of_step(const ModelConfig& config) const;

  /// Nothing where the folder has no such file. Throws Error for a damaged one.
  static std::optional<RunColumns> read(const std::filesystem::path& folder);

  /// The same of the text of the file, which is empty where there is none; `origin` is named in errors.
  static std::optional<RunColumns> parse(const std::string& text, const std::string& origin);

  /// Back to text; empty where there is nothing to say.
  std::string text() const;

  /// Throws UsageError, naming `command`, where the sound in `origin` has another rate or other channels, or
  /// the run has other data than sound.
  void check(const char* command, const std::string& origin, const SoundFormat& found) const;

 private:
  void check_kind(const DataOptions& data) const;
};

}  // namespace linnet
