#include "series/input.h"

#include <utility>

#include "base/fail.h"
#include "layers/columns.h"
#include "model/access.h"
#include "model/network.h"

namespace linnet {

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

void check_series_model(const char* command, const ModelConfig& config) {
  if (!config.shifted() || config.columns == 0 || !config.field_sizes().empty() ||
      config.target_count() % (config.columns / config.patch) != 0)
    fail<UsageError>(command,
                     "expected a model of a series, which predicts the next numbers of its columns, got {}",
                     config.columns == 0 ? "one of tokens" : "another");
  if (config.target_count() < config.columns)
    fail<UsageError>(command, "expected a model that predicts at least the {} rows of a step, got {}",
                     config.patch, config.target_count() / (config.columns / config.patch));
}

void check_statistics(const char* command, const Model& model, const std::optional<RunColumns>& columns) {
  const std::optional<Columns>& layer = network_of(model).columns();
  if (!columns && layer && layer->shape().series() == 1 && layer->is_unscaled())
    fail<UsageError>(
        command, "expected a model with columns.json, with the statistics of each column, got one without");
}

SeriesInput series_input(const char* command, std::shared_ptr<const Model> model,
                         const std::optional<RunColumns>& columns, Series series, const std::string& origin) {
  SeriesInput input{std::move(model), std::move(series)};
  if (columns && columns->sound)
    fail<UsageError>(command, "{}: expected a model of a series, got one of sound", origin);
  if (columns) input.applied = columns->applied;
  if (!input.applied.mean.empty() && input.row_columns() != 1)
    fail<UsageError>(
        command, "expected a model of one column, which columns.json with means stands for, got one of {}",
        input.row_columns());
  const std::int64_t expected =
      input.applied.mean.empty() ? input.row_columns() : std::ssize(input.applied.mean);
  if (std::ssize(input.series.columns) != expected)
    fail<UsageError>(command, "expected {} columns as the model has, got {} in {}", expected,
                     input.series.columns.size(), origin);
  return input;
}

}  // namespace linnet
