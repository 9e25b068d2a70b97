#include "series_input.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "data/files.h"
#include "data/series.h"
#include "io/file.h"
#include "metrics_file.h"
#include "run_record.h"

namespace linnet {
namespace {

/// The file of the run that a command takes where none is given.
std::string path_of_run(const char* command, const std::string& model, const DataOptions& options) {
  if (options.path.empty())
    fail<UsageError>(command, "expected --data for {}, which is no training run, got none", model);
  const auto files = files_found(options.path);
  if (options.kind != "series" || files.size() != 1)
    fail<UsageError>(command, "expected --data for a run on {} files of kind \"{}\", got none", files.size(),
                     options.kind);
  return files.front().string();
}

/// Whether that file is the one that the run is trained on.
bool is_path_of_run(const std::string& path, const DataOptions& options) {
  if (options.kind != "series" || options.path.empty()) return false;
  const auto files = files_found(options.path);
  std::error_code ignored;
  return files.size() == 1 && std::filesystem::equivalent(path, files.front(), ignored);
}

}  // namespace

CommandSeries read_series_input(const char* command, const std::string& model, const std::string& data,
                                const std::string& missing) {
  std::shared_ptr<const Model> loaded = Model::load(model);
  note_better_evaluation(model);
  check_series_model(command, loaded->config());
  DataOptions options;
  const auto run = run_of(model);
  if (run) {
    const RunRecord record = RunRecord::read(*run);
    options = record.config.data;
    if (data.empty()) warn_of_changed_data(record);
  }
  const std::string path = data.empty() ? path_of_run(command, model, options) : data;
  const auto columns = RunColumns::read(run.value_or(model));
  check_statistics(command, *loaded, columns);
  options.kind = "series";
  if (columns) run ? columns->take_columns(options) : columns->take_form(options);
  if (!missing.empty()) options.missing = missing;
  Series series = parse_series(read_file(path), path, options);
  CommandSeries input{series_input(command, std::move(loaded), columns, std::move(series), path)};
  if (is_path_of_run(path, options)) input.calibrate = training_rows(input.series, options, path);
  return input;
}

}  // namespace linnet
