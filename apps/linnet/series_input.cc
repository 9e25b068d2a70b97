#include "series_input.h"

#include <filesystem>

#include "base/fail.h"
#include "data/files.h"
#include "io/file.h"
#include "run_record.h"
#include "training/run_columns.h"

namespace linnet {
namespace {

void check_model(const char* command, const ModelConfig& config) {
  if (!config.shifted() || config.columns == 0 || !config.field_sizes().empty() ||
      config.target_count() % (config.columns / config.patch) != 0)
    fail<UsageError>(command,
                     "expected a model of a series, which predicts the next numbers of its columns, got {}",
                     config.columns == 0 ? "one of tokens" : "another");
  if (config.target_count() < config.columns)
    fail<UsageError>(command, "expected a model that predicts at least the {} rows of a step, got {}",
                     config.patch, config.target_count() / (config.columns / config.patch));
}

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

double SeriesInput::deviation(std::int64_t column) const {
  if (applied.mean.empty()) return 1;
  const double deviation = applied.deviation[static_cast<std::size_t>(column)];
  return deviation > 0 ? deviation : 1;
}

float SeriesInput::to_model(double number, std::int64_t column) const {
  if (applied.mean.empty()) return static_cast<float>(number);
  return static_cast<float>((number - applied.mean[static_cast<std::size_t>(column)]) / deviation(column));
}

double SeriesInput::from_model(double number, std::int64_t column) const {
  if (applied.mean.empty()) return number;
  return applied.mean[static_cast<std::size_t>(column)] + number * deviation(column);
}

std::vector<float> SeriesInput::step(std::int64_t row, std::int64_t stream) const {
  std::vector<float> result;
  const std::int64_t columns = std::ssize(series.columns), first = stream * row_columns();
  for (std::int64_t i = row; i < row + patch(); ++i)
    for (std::int64_t c = first; c < first + row_columns(); ++c)
      result.push_back(to_model(series.values[static_cast<std::size_t>(i * columns + c)], c));
  return result;
}

SeriesInput read_series_input(const char* command, const std::string& model, const std::string& data,
                              const std::string& missing) {
  SeriesInput input{.model = Model::load(model), .options = {}, .series = {}, .applied = {}};
  const ModelConfig& config = input.model->config();
  check_model(command, config);
  const auto run = run_of(model);
  if (run) {
    const RunRecord record = RunRecord::read(*run);
    input.options = record.config.data;
    if (data.empty()) warn_of_changed_data(record);
  }
  const std::string path = data.empty() ? path_of_run(command, model, input.options) : data;
  const auto columns = RunColumns::read(run.value_or(model));
  input.options.kind = "series";
  if (columns) run ? columns->take_names(input.options) : columns->take_form(input.options);
  if (!missing.empty()) input.options.missing = missing;
  input.series = parse_series(read_file(path), path, input.options);
  if (columns) {
    columns->check(command, path, input.series.columns);
    input.applied = columns->applied;
  } else if (input.options.columns_apart || data_for_model(*input.model, path, "series").columns_apart) {
    fail<UsageError>(command, "expected columns.json in {}, with the statistics of each column, got none",
                     run ? run->string() : model);
  }
  if (!input.applied.mean.empty() && input.row_columns() != 1)
    fail<UsageError>(
        command, "expected a model of one column, which columns.json with means stands for, got one of {}",
        input.row_columns());
  const std::int64_t expected =
      input.applied.mean.empty() ? input.row_columns() : std::ssize(input.series.columns);
  if (std::ssize(input.series.columns) != expected)
    fail<UsageError>(command, "expected {} columns as the model has, got {} in {}", expected,
                     input.series.columns.size(), path);
  if (is_path_of_run(path, input.options)) input.calibrate = training_rows(input.series, input.options, path);
  return input;
}

}  // namespace linnet
