#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config.h"
#include "data/fingerprint.h"
#include "io/options.h"
#include "training/run_columns.h"

namespace linnet {

/// The file of a run's folder that holds its record.
inline constexpr const char* record_file = "run.toml";

/// What run.toml in the folder of a training run holds: everything that decides the run, and where it comes
/// from.
struct RunRecord {
  RunConfig config;
  DataFingerprint data;
  std::string version, command, started;  ///< of the first start; the time is UTC
  std::string resumed = {};               ///< command of the last resume
  std::string initial = {};               ///< folder of the model that the run starts from
  bool initial_partial = false;

  /// All keys, bound to this object.
  Options options();

  /// Throws UsageError where the folder has no run.toml.
  static RunRecord read(const std::filesystem::path& run);
  void write(const std::filesystem::path& run);
};

/// The values that name files and folders of the data.
std::vector<std::string*> sources_of(DataOptions& data);

/// The folder of the run that a model's folder belongs to: the run itself, its best/ or one of its
/// checkpoints. Nothing for other models.
std::optional<std::filesystem::path> run_of(const std::filesystem::path& model);

/// The columns of a model's folder, and of the run that it belongs to. Throws as RunColumns::read.
std::optional<RunColumns> columns_of_model(const std::filesystem::path& model);

/// Says on standard error where the files of a run's data have another size than when it began: what is read
/// from them may be what it was trained on, or other data. Files of the same size are not compared.
void warn_of_changed_data(const RunRecord& run);

/// The same of the run that a model belongs to, if there is one.
void warn_of_changed_data(const std::filesystem::path& model);

/// Says on standard error where a file of `data` is one that the run of a model was trained with.
void warn_of_training_data(const std::filesystem::path& model, const std::string& data);

/// The command line of this process, as a shell takes it.
std::string own_command_line();

/// Now, as 2026-01-31T12:00:00Z.
std::string utc_now();

}  // namespace linnet
