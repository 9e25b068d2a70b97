#include "series_input.h"

#include "base/fail.h"
#include "data/files.h"
#include "io/file.h"
#include "run_record.h"

namespace linnet {

SeriesInput read_series_input(const char* command, const std::string& model, const std::string& data) {
  SeriesInput input{.model = Model::load(model), .options = {}, .series = {}};
  const ModelConfig& config = input.model->config();
  if (!config.shifted() || config.columns == 0 || !config.field_sizes().empty() ||
      config.target_count() % config.columns != 0)
    fail<UsageError>(command,
                     "expected a model of a series, which predicts the next numbers of its columns, got {}",
                     config.columns == 0 ? "one of tokens" : "another");
  if (const auto run = run_of(model)) input.options = RunRecord::read(*run).config.data;
  std::string path = data;
  if (path.empty()) {
    if (input.options.path.empty())
      fail<UsageError>(command, "expected --data for {}, which is no training run, got none", model);
    const auto files = files_found(input.options.path);
    if (input.options.kind != "series" || files.size() != 1)
      fail<UsageError>(command, "expected --data for a run on {} files of kind \"{}\", got none",
                       files.size(), input.options.kind);
    path = files.front().string();
  }
  input.series = parse_series(read_file(path), path, input.options);
  if (std::ssize(input.series.columns) != config.columns)
    fail<UsageError>(command, "expected {} columns as the model has, got {} in {}", config.columns,
                     input.series.columns.size(), path);
  return input;
}

}  // namespace linnet
